package docs

import (
	"regexp"
	"strings"
	"testing"
)

// The page about operations names every setting and every metric.
func TestOperationsIsComplete(t *testing.T) {
	page, err := files.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	source := goSource(t, "../cmd/orbit") + goSource(t, "../service")
	for what, form := range map[string]string{
		"setting": `env:"(ORBIT_[A-Z_]+)"`,
		"metric":  `Name:\s+"(orbit_[a-z_]+)"`,
	} {
		found := regexp.MustCompile(form).FindAllStringSubmatch(source, -1)
		if len(found) == 0 {
			t.Errorf("no %s was found in the sources", what)
		}
		for _, m := range found {
			if !strings.Contains(string(page), "`"+m[1]+"`") {
				t.Errorf("the %s %s is not on the page", what, m[1])
			}
		}
	}
}
