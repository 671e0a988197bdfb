package docs

import (
	"regexp"
	"strings"
	"testing"
)

// The page about the architecture names every loop and every type of event.
func TestArchitectureIsComplete(t *testing.T) {
	page, err := files.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	service := goSource(t, "../service")
	for what, form := range map[string]string{
		"loop":  `\{Name: "([a-z_]+)", Interval:`,
		"event": `"((?:task|attempt|queue|gate|credential|worker|schedule)\.[a-z_]+)"`,
	} {
		found := regexp.MustCompile(form).FindAllStringSubmatch(service, -1)
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
