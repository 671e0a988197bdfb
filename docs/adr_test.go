package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the decisions are said to be held by is there: tests by name, and invariants of `orbit verify`.
func TestDecisionsAreHeldByWhatIsThere(t *testing.T) {
	tests, service := declaredTests(t), goSource(t, "../service")
	names, err := fs.Glob(files, "adr/*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	invariant := regexp.MustCompile("`((?:pulse|platform)\\.[a-z_]+\\.[a-z_]+)`")
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			if !tests[string(m[1])] {
				t.Errorf("%s names the test %s, which does not exist", name, m[1])
			}
		}
		for _, m := range invariant.FindAllSubmatch(text, -1) {
			if !strings.Contains(service, `"`+string(m[1])+`"`) {
				t.Errorf("%s names the invariant %s, which orbit verify does not have", name, m[1])
			}
		}
		if !strings.Contains(string(text), "\n## Held by\n") {
			t.Errorf("%s does not say what holds the decision", name)
		}
	}
}

func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	walk(t, "..", "_test.go", func(_ string, text []byte) {
		for _, m := range function.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
	})
	return declared
}

func goSource(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	walk(t, root, ".go", func(name string, text []byte) {
		if !strings.HasSuffix(name, "_test.go") {
			b.Write(text)
		}
	})
	return b.String()
}

func walk(t *testing.T, root, suffix string, with func(name string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, suffix) {
			return err
		}
		text, err := os.ReadFile(name)
		with(name, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
