package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// The Go that the README shows stands in an example, which compiles.
func TestReadmeShowsTheExample(t *testing.T) {
	example, err := os.ReadFile("../examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	unindented := strings.ReplaceAll(string(example), "\n\t", "\n")
	for _, name := range []string{"../README.md", "../README.zh-CN.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		blocks := goBlock.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			t.Errorf("%s shows no Go", name)
		}
		for _, m := range blocks {
			if !strings.Contains(unindented, m[1]) {
				t.Errorf("%s shows Go that examples/hello does not have:\n%s", name, m[1])
			}
		}
	}
}

// Both READMEs have the same commands, links and headings, in the same order.
func TestReadmesMirrorEachOther(t *testing.T) {
	code := regexp.MustCompile("(?s)```[a-z]+\n.*?```")
	comment := regexp.MustCompile(`(?m)\s+# .*$`)
	links := regexp.MustCompile(`\]\(([^)]+)\)`)
	headings := regexp.MustCompile(`(?m)^#+ `)
	shape := func(name string) []string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, block := range code.FindAllString(string(text), -1) {
			all = append(all, comment.ReplaceAllString(block, ""))
		}
		prose := code.ReplaceAllString(string(text), "")
		for _, m := range links.FindAllStringSubmatch(prose, -1) {
			if !strings.HasPrefix(m[1], "README") {
				all = append(all, m[1])
			}
		}
		return append(all, headings.FindAllString(prose, -1)...)
	}
	english, chinese := shape("../README.md"), shape("../README.zh-CN.md")
	if len(english) != len(chinese) {
		t.Errorf("README.md has %d commands, links and headings, README.zh-CN.md %d", len(english), len(chinese))
	}
	for i := range min(len(english), len(chinese)) {
		if english[i] != chinese[i] {
			t.Errorf("README.md has %q where README.zh-CN.md has %q", english[i], chinese[i])
		}
	}
}
