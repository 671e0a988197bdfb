package platform

import (
	"database/sql"
	"errors"
	"strings"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// Keyed is an operation that takes an Idempotency-Key.
type Keyed struct {
	Action string // that it needs
	Path   string // as in the document, with {…} for the one id it may hold
}

// KeyedOperations are the ones of this module.
var KeyedOperations = map[string]Keyed{
	"createCredential": {ActionAdmin, "/v1/credentials"},
	"rotateCredential": {ActionAdmin, "/v1/credentials/{credential_id}:rotate"},
	"revokeCredential": {ActionAdmin, "/v1/credentials/{credential_id}:revoke"},
}

// find gives the operation and the path of a request that used a key. place says where the two were named, for refusals.
func (s *Service) find(operation, path, place string) (Keyed, string, *fault.Fault) {
	k, ok := s.Keyed[operation]
	if !ok {
		return k, "", fault.Invalid(place+"operation", "unknown_operation", "no operation of this name takes an Idempotency-Key (a task of a batch is asked about as submitTask)")
	}
	before, rest, hasID := strings.Cut(k.Path, "{")
	if !hasID {
		if path != "" && path != k.Path {
			return k, "", fault.Invalid(place+"path", "path", "%s has the path %s", operation, k.Path)
		}
		return k, k.Path, nil
	}
	_, after, _ := strings.Cut(rest, "}")
	id, okBefore := strings.CutPrefix(path, before)
	id, okAfter := strings.CutSuffix(id, after)
	if _, err := orbit.ParseID(id); !okBefore || !okAfter || err != nil {
		return k, "", fault.Invalid(place+"path", "path", "%s needs the path of the request, of the form %s", operation, k.Path)
	}
	return k, path, nil
}

// missing turns an absent row into the one answer for what is not there.
func missing(err error, kind string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fault.Missing(kind)
	}
	return err
}
