// Package docs serves the documents that the binary carries: the API reference, the guides, and a page for each problem code.
package docs

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/orbit-run/orbit/openapi"
)

//go:embed *.md *.json adr/*.md problems/*.md assets/*.js assets/*.svg assets/*.css assets/*.txt
var files embed.FS

// Handler serves /docs (the API reference), /docs/… (the pages of this folder, without their ending .md, with which they redirect there) and
// /openapi.yaml. It needs no key, reads nothing but what is in the binary, and its pages load nothing from elsewhere. What it does not have is 404.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		document, ok := documents()[r.URL.Path]
		if page, near := nearby(r.URL.Path); !ok && near {
			http.Redirect(w, r, page, http.StatusMovedPermanently)
			return
		}
		if !ok {
			http.Error(w, "there is no such page; /docs/ lists those there are", http.StatusNotFound)
			return
		}
		document.serve(w, r)
	})
}

// nearby is the page that is meant by the name of its file, as in the repository, or by a folder without its slash.
func nearby(at string) (page string, ok bool) {
	for _, page := range []string{strings.TrimSuffix(at, ".md"), at + "/", strings.TrimSuffix(at, "/")} {
		if _, ok := documents()[page]; ok && page != at {
			return page, true
		}
	}
	return "", false
}

type document struct {
	contentType string
	etag        string
	body        []byte
}

func newDocument(contentType string, body []byte) document {
	sum := sha256.Sum256(body)
	return document{contentType, `"` + hex.EncodeToString(sum[:16]) + `"`, body}
}

// policy lets a page load what this handler serves and nothing else. The reference writes its styles at run time and searches in a worker
// made from a blob; pages cannot be framed.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (d document) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", d.contentType)
	h.Set("ETag", d.etag)
	h.Set("Cache-Control", "no-cache") // kept, and asked for again with its tag
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.body))
}

// documents is everything that is served, by path.
var documents = sync.OnceValue(func() map[string]document {
	all := map[string]document{"/openapi.yaml": newDocument("application/yaml", openapi.Document)}
	pages, err := renderPages(files)
	if err == nil {
		for at, html := range pages {
			all[at] = newDocument("text/html; charset=utf-8", html)
		}
		err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || path.Ext(name) == ".md" {
				return err
			}
			body, err := files.ReadFile(name)
			all["/docs/"+name] = newDocument(contentType(name), body)
			return err
		})
	}
	if err != nil {
		panic("docs: what is in the binary cannot be rendered: " + err.Error())
	}
	return all
})

func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// pagePath is where a Markdown file of this folder is served.
func pagePath(name string) string { return "/docs/" + strings.TrimSuffix(name, ".md") }
