package orbit

import (
	"database/sql"
	"database/sql/driver"
	"testing"
)

type state interface {
	~string
	driver.Valuer
	Valid() bool
}

func testState[S state, P interface {
	*S
	sql.Scanner
}](t *testing.T, values ...S) {
	t.Helper()
	seen := map[S]bool{}
	for _, s := range values {
		if seen[s] {
			t.Errorf("%T: %q is there twice", s, s)
		}
		seen[s] = true
		if !s.Valid() {
			t.Errorf("%T: %q is not valid", s, s)
		}
		v, err := s.Value()
		if v != string(s) || err != nil {
			t.Errorf("%T: Value of %q = %v, %v", s, s, v, err)
		}
		var text, raw S
		if err := P(&text).Scan(string(s)); err != nil || text != s {
			t.Errorf("%T: Scan(%q) = %q, %v", s, string(s), text, err)
		}
		if err := P(&raw).Scan([]byte(s)); err != nil || raw != s {
			t.Errorf("%T: Scan([]byte(%q)) = %q, %v", s, string(s), raw, err)
		}
	}
	for _, bad := range []S{"", "nonsense", values[0] + " ", "OPEN"} {
		if bad.Valid() {
			t.Errorf("%T: %q is valid", bad, bad)
		}
	}
	null := values[0]
	if v, err := S("").Value(); v != nil || err != nil {
		t.Errorf("%T: Value of the zero value = %v, %v, want NULL", null, v, err)
	}
	if err := P(&null).Scan(nil); err != nil || null != "" {
		t.Errorf("%T: Scan(nil) = %q, %v", null, null, err)
	}
	if err := P(&null).Scan(int64(1)); err == nil {
		t.Errorf("%T: Scan(1) succeeded", null)
	}
}

func TestStates(t *testing.T) {
	testState[TaskState](t, "open", "review", "succeeded", "failed", "cancelled")
	testState[AttemptState](t, "offered", "running", "succeeded", "failed", "cancelled", "lost", "expired", "released")
	testState[InstanceState](t, "live", "superseded", "closed", "expired")
	testState[GateState](t, "open", "closed")
	testState[GateScope](t, "namespace", "queue", "task_type", "instance")
	testState[CredentialState](t, "active", "revoked")
	testState[KeyState](t, "reserved", "done", "void", "expired")
	testState[Outcome](t, "succeeded", "failed", "cancelled")
	testState[UnknownOutcome](t, "review", "retry")
}
