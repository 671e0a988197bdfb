// Package finding holds what a verification answers: the invariants that were found broken.
package finding

import (
	"fmt"

	"github.com/orbit-run/orbit"
)

// Finding is one broken invariant at one row. It was read twice, the second time alone, so that it is none of a change under way.
type Finding struct {
	Invariant   string   // stable name, such as pulse.task.one_place
	NamespaceID orbit.ID // zero for what belongs to no tenant
	ID          orbit.ID // the row; zero if it has no id of its own
	Detail      string   // what was found, for people; no business content
}

// String is one line for logs and terminals.
func (f Finding) String() string {
	return fmt.Sprintf("%s namespace=%s id=%s: %s", f.Invariant, f.NamespaceID, f.ID, f.Detail)
}
