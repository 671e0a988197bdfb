package platform

import (
	"strings"
	"testing"

	"github.com/orbit-run/orbit/service/internal/fault"
)

func TestFindKeyedOperation(t *testing.T) {
	s := &Service{Keyed: KeyedOperations}
	id := strings.Repeat("0a", 16)
	for _, c := range []struct{ operation, path, want string }{
		{"createCredential", "", "/v1/credentials"},
		{"createCredential", "/v1/credentials", "/v1/credentials"},
		{"rotateCredential", "/v1/credentials/" + id + ":rotate", "/v1/credentials/" + id + ":rotate"},
	} {
		k, path, f := s.find(c.operation, c.path, "query/")
		if f != nil || path != c.want || k.Action != ActionAdmin {
			t.Errorf("%s %q: %q %v", c.operation, c.path, path, f)
		}
	}
	for _, c := range []struct{ operation, path, pointer string }{
		{"createTask", "", "query/operation"},
		{"getCredential", "", "query/operation"},
		{"", "", "query/operation"},
		{"createCredential", "/v1/credential", "query/path"},
		{"rotateCredential", "", "query/path"},
		{"rotateCredential", "/v1/credentials/{credential_id}:rotate", "query/path"},
		{"rotateCredential", "/v1/credentials/" + id, "query/path"},
		{"rotateCredential", "/v1/credentials/" + id + ":revoke", "query/path"},
		{"rotateCredential", "/v1/credentials/" + strings.ToUpper(id) + ":rotate", "query/path"},
	} {
		_, _, f := s.find(c.operation, c.path, "query/")
		if f == nil || f.Code != fault.InvalidRequest || f.Errors[0].Pointer != c.pointer {
			t.Errorf("%s %q: %v, want %s", c.operation, c.path, f, c.pointer)
		}
	}
}

func TestCheckKey(t *testing.T) {
	for _, key := range []string{"k", "!", "~", strings.Repeat("x", 128), `a"b\c/d`} {
		if f := CheckKey(key); f != nil {
			t.Errorf("%q: %v", key, f)
		}
	}
	for key, code := range map[string]fault.Code{
		"": fault.IdempotencyMissing, strings.Repeat("x", 129): fault.InvalidRequest, "a b": fault.InvalidRequest, "é": fault.InvalidRequest,
		"a\t": fault.InvalidRequest, "a\x7f": fault.InvalidRequest,
	} {
		if f := CheckKey(key); f == nil || f.Code != code {
			t.Errorf("%q: %v, want %s", key, f, code)
		}
	}
}

// Neither moving a character between two parts nor another part may give the same scope.
func TestScopeHash(t *testing.T) {
	base := Scope{Operation: "submitTask", Path: "/v1/tasks"}
	for name, other := range map[string]Scope{
		"actor":     {ActorID: greatest, Operation: base.Operation, Path: base.Path},
		"operation": {Operation: "submitTasks", Path: base.Path},
		"path":      {Operation: base.Operation, Path: "/v1/task"},
		"moved":     {Operation: "submitTask/", Path: "v1/tasks"},
	} {
		if other.hash() == base.hash() {
			t.Errorf("%s is not in the hash", name)
		}
	}
	if (Scope{NamespaceID: greatest, Operation: base.Operation, Path: base.Path}).hash() != base.hash() {
		t.Error("the namespace is in the hash, although it leads the primary key already")
	}
}
