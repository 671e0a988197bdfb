package docs

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestRenderPages(t *testing.T) {
	files := fstest.MapFS{
		"one.md":          {Data: []byte("# One `of` them\n\n[two](problems/two.md#why) and [out](https://example.com/a.md)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")},
		"problems/two.md": {Data: []byte("# Two\n\n## Why\n\n<script>alert(1)</script>\n\n[one](../one.md) <img src=x onerror=alert(1)>\n")},
	}
	pages, err := renderPages(files)
	if err != nil {
		t.Fatal(err)
	}
	for at, wants := range map[string][]string{
		"/docs/one":          {"<title>One of them · Orbit</title>", `href="problems/two#why"`, `href="https://example.com/a.md"`, "<td>1</td>"},
		"/docs/problems/two": {`<h2 id="why">`, `href="../one"`},
		"/docs/problems/":    {`<a href="/docs/problems/two">Two</a>`},
		"/docs/":             {`<h2>Guides</h2>`, `<a href="/docs/one">One of them</a>`, `<h2>Problems</h2>`},
	} {
		for _, want := range wants {
			if !strings.Contains(string(pages[at]), want) {
				t.Errorf("%s lacks %s:\n%s", at, want, pages[at])
			}
		}
	}
	if two := string(pages["/docs/problems/two"]); strings.Contains(two, "alert(1)</script>") || strings.Contains(two, "onerror") {
		t.Errorf("HTML of a page came through:\n%s", two)
	}
}

func TestPageWithoutTitleIsRefused(t *testing.T) {
	for _, text := range []string{"", "text\n", "## Second level\n"} {
		if _, err := renderPages(fstest.MapFS{"page.md": {Data: []byte(text)}}); err == nil || !strings.Contains(err.Error(), "page.md") {
			t.Errorf("%q: %v, want a refusal that names the page", text, err)
		}
	}
}
