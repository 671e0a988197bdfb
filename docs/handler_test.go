package docs

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/openapi"
)

func get(method, target string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, req)
	return w
}

func TestHandler(t *testing.T) {
	for _, c := range []struct {
		method, target string
		status         int
		contentType    string
		contains       string
	}{
		{"GET", "/docs", 200, "text/html; charset=utf-8", `src="/docs/assets/redoc.standalone.js"`},
		{"GET", "/docs/", 200, "text/html; charset=utf-8", `href="/docs/problems/not_found"`},
		{"GET", "/docs/problems/", 200, "text/html; charset=utf-8", `href="/docs/problems/not_found"`},
		{"GET", "/docs/problems/not_found", 200, "text/html; charset=utf-8", "<code>not_found</code> · HTTP 404"},
		{"GET", "/docs/digest", 200, "text/html; charset=utf-8", `href="problems/idempotency_conflict"`},
		{"GET", "/docs/digest-vectors.json", 200, "application/json", "orbit.digest.v1"},
		{"GET", "/docs/assets/redoc.standalone.js", 200, "text/javascript; charset=utf-8", "Redoc"},
		{"GET", "/docs/assets/page.css", 200, "text/css; charset=utf-8", "color-scheme"},
		{"GET", "/openapi.yaml", 200, "application/yaml", "openapi: 3.1.0"},
		{"HEAD", "/openapi.yaml", 200, "application/yaml", ""},
		{"GET", "/docs/problems/no_such_code", 404, "text/plain; charset=utf-8", "/docs/"},
		{"GET", "/docs/../go.mod", 404, "text/plain; charset=utf-8", ""},
		{"GET", "/docs/assets/", 404, "text/plain; charset=utf-8", ""},
		{"POST", "/docs", 405, "text/plain; charset=utf-8", ""},
	} {
		t.Run(c.method+" "+c.target, func(t *testing.T) {
			r := get(c.method, c.target)
			if r.Code != c.status || r.Header().Get("Content-Type") != c.contentType {
				t.Errorf("%d %q, want %d %q", r.Code, r.Header().Get("Content-Type"), c.status, c.contentType)
			}
			if text := r.Body.String(); !strings.Contains(text, c.contains) || c.method == "HEAD" && text != "" {
				t.Errorf("the body does not hold %q, or is one where none should be: %.200q", c.contains, text)
			}
		})
	}
}

func TestNearbyNamesRedirect(t *testing.T) {
	for from, to := range map[string]string{
		"/docs/protocol.md":           "/docs/protocol",
		"/docs/problems/not_found.md": "/docs/problems/not_found",
		"/docs/adr":                   "/docs/adr/",
		"/docs/problems":              "/docs/problems/",
		"/docs/protocol/":             "/docs/protocol",
		"/openapi.yaml/":              "/openapi.yaml",
	} {
		if r := get("GET", from); r.Code != http.StatusMovedPermanently || r.Header().Get("Location") != to {
			t.Errorf("%s: %d to %q, want %q", from, r.Code, r.Header().Get("Location"), to)
		}
	}
	for _, at := range []string{"/docs/no_such.md", "/docs/no_such/", "/docs/assets", "/docs/protocol.md.md"} {
		if r := get("GET", at); r.Code != http.StatusNotFound {
			t.Errorf("%s: %d", at, r.Code)
		}
	}
}

func TestDocumentIsServedAsItIs(t *testing.T) {
	r := get("GET", "/openapi.yaml")
	if r.Body.String() != string(openapi.Document) {
		t.Error("/openapi.yaml is not openapi/orbit.yaml")
	}
	again := get("GET", "/openapi.yaml", "If-None-Match", r.Header().Get("ETag"))
	if again.Code != http.StatusNotModified {
		t.Errorf("asked for again with its tag: %d, want 304", again.Code)
	}
}

// A page loads nothing from another host, and its policy would not let it.
func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	loads := regexp.MustCompile(`(?i)<(?:script|link|img|iframe|source|object|embed)[^>]*(?:src|href|data)\s*=\s*["']?(?:https?:)?//`)
	inline := regexp.MustCompile(`(?is)<script[^>]*>\s*[^<\s]|\son[a-z]+\s*=`)
	for at, d := range documents() {
		if !strings.HasPrefix(d.contentType, "text/html") {
			continue
		}
		if found := loads.Find(d.body); found != nil {
			t.Errorf("%s: %s", at, found)
		}
		if found := inline.Find(d.body); found != nil {
			t.Errorf("%s: %q is a script in the page, which the policy forbids", at, found)
		}
	}
	if got := get("GET", "/docs").Header().Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none';") || strings.Contains(got, "http") {
		t.Errorf("Content-Security-Policy: %s", got)
	}
}

func TestLinksBetweenPagesResolve(t *testing.T) {
	links := regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	ids := regexp.MustCompile(` id="([^"]*)"`)
	anchors := map[string]map[string]bool{}
	for at, d := range documents() {
		anchors[at] = map[string]bool{}
		for _, m := range ids.FindAllSubmatch(d.body, -1) {
			anchors[at][string(m[1])] = true
		}
	}
	for at, d := range documents() {
		if !strings.HasPrefix(d.contentType, "text/html") {
			continue
		}
		base := &url.URL{Path: at}
		for _, m := range links.FindAllSubmatch(d.body, -1) {
			link, err := url.Parse(string(m[1]))
			if err != nil {
				t.Errorf("%s: %v", at, err)
				continue
			}
			if link.IsAbs() {
				continue
			}
			target := base.ResolveReference(link)
			if _, ok := documents()[target.Path]; !ok {
				t.Errorf("%s links to %s, which is not served", at, m[1])
			} else if target.Fragment != "" && !anchors[target.Path][target.Fragment] {
				t.Errorf("%s links to %s, which has no such heading", at, m[1])
			}
		}
	}
}

// The pages that are read in the repository alone link to files that are there.
func TestLinksOfTheRepositoryResolve(t *testing.T) {
	names, err := filepath.Glob("../*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no Markdown at the root: %v", err)
	}
	links := regexp.MustCompile(`\]\(([^)#\s]+)`)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range links.FindAllSubmatch(text, -1) {
			if target := string(m[1]); !strings.Contains(target, "://") {
				if _, err := os.Stat(filepath.Join("..", target)); err != nil {
					t.Errorf("%s links to %s: %v", name, target, err)
				}
			}
		}
	}
}

var problemLine = regexp.MustCompile("(?m)^`([a-z_]+)` · HTTP [45][0-9][0-9]$")

func TestProblemPagesNameTheirCode(t *testing.T) {
	names, err := fs.Glob(files, "problems/*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no problem pages: %v", err)
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m := problemLine.FindSubmatch(text)
		if m == nil || string(m[1]) != strings.TrimSuffix(path.Base(name), ".md") {
			t.Errorf("%s: the line with its code and status is missing or names another code", name)
		}
	}
}

// The renderer is the version that fetch.sh names.
func TestRendererIsThePinnedOne(t *testing.T) {
	script, err := os.ReadFile("assets/fetch.sh")
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`(?m)^version=(.+)$`).FindSubmatch(script)
	licence, err := files.ReadFile("assets/redoc.standalone.js.LICENSE.txt")
	if err != nil {
		t.Fatal(err)
	}
	held := regexp.MustCompile(`Version: "(.+)"`).FindSubmatch(licence)
	if pinned == nil || held == nil || string(pinned[1]) != string(held[1]) {
		t.Errorf("fetch.sh pins %q, the bundle is %q", pinned, held)
	}
}
