package docs

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown is what the pages are written in: CommonMark with tables. HTML in a page is left out.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(linkTrimmer{}, 100))),
)

// linkTrimmer turns links between Markdown files into links between their pages.
type linkTrimmer struct{}

func (linkTrimmer) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering && !bytes.Contains(link.Destination, []byte("://")) {
			file, fragment, _ := bytes.Cut(link.Destination, []byte("#"))
			target := bytes.TrimSuffix(file, []byte(".md"))
			if len(fragment) > 0 {
				target = slices.Concat(target, []byte("#"), fragment)
			}
			link.Destination = target
		}
		return ast.WalkContinue, nil
	})
}

//go:embed page.html
var pageText string

//go:embed reference.html
var referenceText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

type page struct {
	Title string
	Body  template.HTML // rendered by markdown, which lets no HTML of a page through
	Lists []list        // instead of a body
}

// list is the pages of a folder.
type list struct {
	Title string // empty where the page's own title says it
	Pages []entry
}

type entry struct{ Path, Title string }

// folders hold the pages, in the order in which they are listed.
var folders = []struct{ name, title string }{{".", "Guides"}, {"problems", "Problems"}, {"adr", "Decisions"}}

// renderPages gives the HTML of every page by its path: one a Markdown file, the lists of them, and the API reference.
func renderPages(files fs.FS) (map[string][]byte, error) {
	html := map[string][]byte{"/docs": []byte(referenceText)}
	var all []list
	for _, folder := range folders {
		names, err := fs.Glob(files, path.Join(folder.name, "*.md"))
		if err != nil {
			return nil, err
		}
		var pages []entry
		for _, name := range names {
			p, err := readPage(files, name)
			if err != nil {
				return nil, err
			}
			if html[pagePath(name)], err = p.render(); err != nil {
				return nil, err
			}
			pages = append(pages, entry{pagePath(name), p.Title})
		}
		all = append(all, list{folder.title, pages})
		if folder.name != "." {
			if html["/docs/"+folder.name+"/"], err = (page{Title: folder.title, Lists: []list{{Pages: pages}}}).render(); err != nil {
				return nil, err
			}
		}
	}
	var err error
	html["/docs/"], err = page{Title: "Documents", Lists: all}.render()
	return html, err
}

func readPage(files fs.FS, name string) (page, error) {
	source, err := fs.ReadFile(files, name)
	if err != nil {
		return page{}, err
	}
	doc := markdown.Parser().Parse(text.NewReader(source))
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, source, doc); err != nil {
		return page{}, fmt.Errorf("%s: %w", name, err)
	}
	heading, ok := doc.FirstChild().(*ast.Heading)
	if !ok || heading.Level != 1 {
		return page{}, fmt.Errorf("%s: a page begins with its title, a heading of the first level", name)
	}
	return page{Title: plainText(heading, source), Body: template.HTML(body.String())}, nil
}

func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

func (p page) render() ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}
