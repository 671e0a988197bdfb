package pulse

import (
	"strings"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// match is the tag that a caller's If-Match names; empty if there was none.
type match string

// readMatch judges the header alone: precondition_required if it is required and missing, invalid_request unless it is one
// strong tag.
func readMatch(header api.OptString, required bool) (match, error) {
	tag, ok := header.Get()
	if !ok {
		if required {
			return "", fault.New(fault.PreconditionRequired, "this operation needs If-Match with the ETag of what you saw, so that it acts on nothing else")
		}
		return "", nil
	}
	inner, quoted := strings.CutPrefix(tag, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	if !quoted || !closed || inner == "" || strings.ContainsAny(inner, `", `) {
		return "", fault.Invalid("header/If-Match", "etag", "If-Match is one strong entity tag with its quotes, as the header ETag gave it; lists, weak tags and * are not taken")
	}
	return match(tag), nil
}

// check compares with the current tag; absent matches everything.
func (m match) check(current string) error {
	if m == "" || string(m) == current {
		return nil
	}
	return fault.New(fault.RevisionMismatch, "If-Match names %s, but the current tag is %s: read it again and decide anew", string(m), current)
}
