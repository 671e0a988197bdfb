// Command dictionary prints docs/data-dictionary.md: every table and column with its comment, from the fingerprints of the
// migrations. It needs no database.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/orbit-run/orbit/schema"
)

func main() {
	log.SetFlags(0)
	fingerprints, err := schema.Fingerprints()
	if err == nil {
		err = write(os.Stdout, fingerprints)
	}
	if err != nil {
		log.Fatal(err)
	}
}

const head = `# Data dictionary

Made from the schema's own comments by ` + "`make gen`" + `; change ` + "`schema/*.sql`" + `, not this page. Columns of text without a
collation named here are utf8mb4_0900_bin. All tables are InnoDB; foreign keys restrict.
`

var modules = []struct{ prefix, title string }{{"orbit_", "Platform"}, {"pulse_", "Pulse"}}

func write(w io.Writer, fingerprints []schema.Fingerprint) error {
	lines := map[string][]string{} // by table, as its last migration leaves it
	for _, f := range fingerprints {
		lines[f.Table] = f.After
		if len(f.After) == 0 {
			delete(lines, f.Table)
		}
	}
	var b strings.Builder
	b.WriteString(head)
	for _, module := range modules {
		fmt.Fprintf(&b, "\n## %s\n", module.title)
		for _, name := range slices.Sorted(maps.Keys(lines)) {
			if !strings.HasPrefix(name, module.prefix) {
				continue
			}
			t, err := parse(name, lines[name])
			if err != nil {
				return err
			}
			t.write(&b)
			delete(lines, name)
		}
	}
	if len(lines) > 0 {
		return fmt.Errorf("tables of no module: %v", slices.Sorted(maps.Keys(lines)))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type table struct {
	name, comment string
	columns       []column
	rules         []string
}

type column struct{ name, kind, null, comment string }

// The lines are those of schema.Describe.
var (
	tableLine   = regexp.MustCompile(`^table .* comment='(.*)'$`)
	columnLine  = regexp.MustCompile(`^column (\w+) (.+?)(?: collation=(\w+))? (null|not null)( default='(?:[^'\\]|\\.)*')?(.*?) comment='(.*)'$`)
	indexLine   = regexp.MustCompile(`^index (\w+)( unique)? btree (\(.*\))$`)
	foreignLine = regexp.MustCompile(`^foreign key (\w+) (\(.*\)) references (\w+) (\(.*\)) on update NO ACTION on delete NO ACTION$`)
	checkLine   = regexp.MustCompile(`^check (\w+) (.*)$`)
	triggerLine = regexp.MustCompile(`^trigger (\w+) (before|after) (insert|update|delete) `)
)

func parse(name string, lines []string) (table, error) {
	t := table{name: name}
	for _, line := range lines {
		if !t.add(line) {
			return t, fmt.Errorf("%s: the dictionary has no form for %q", name, line)
		}
	}
	slices.SortStableFunc(t.rules, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return t, nil
}

func (t *table) add(line string) bool {
	kind, _, _ := strings.Cut(line, " ")
	switch kind {
	case "table":
		return take(tableLine, line, func(m []string) { t.comment = unquote(m[1]) })
	case "column":
		return take(columnLine, line, func(m []string) {
			c := column{name: m[1], kind: m[2], null: m[4], comment: unquote(m[7])}
			if m[3] != "" && m[3] != "utf8mb4_0900_bin" {
				c.kind += ", " + m[3]
			}
			c.kind += m[5] + m[6]
			t.columns = append(t.columns, c)
		})
	case "index":
		return take(indexLine, line, func(m []string) {
			switch {
			case m[1] == "PRIMARY":
				t.rule("primary key %s", m[3])
			case m[2] != "":
				t.rule("unique `%s` %s", m[1], m[3])
			default:
				t.rule("index `%s` %s", m[1], m[3])
			}
		})
	case "foreign":
		return take(foreignLine, line, func(m []string) { t.rule("foreign key %s → `%s` %s", m[2], m[3], m[4]) })
	case "check":
		return take(checkLine, line, func(m []string) { t.rule("check `%s`: `%s`", m[1], m[2]) })
	case "trigger":
		return take(triggerLine, line, func(m []string) { t.rule("trigger `%s`, %s %s", m[1], m[2], m[3]) })
	}
	return false
}

func take(form *regexp.Regexp, line string, with func(m []string)) bool {
	m := form.FindStringSubmatch(line)
	if m != nil {
		with(m)
	}
	return m != nil
}

func (t *table) rule(format string, args ...any) {
	t.rules = append(t.rules, fmt.Sprintf(format, args...))
}

func rank(rule string) int {
	kind, _, _ := strings.Cut(rule, " ")
	return slices.Index([]string{"primary", "unique", "index", "foreign", "check", "trigger"}, kind)
}

func (t table) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n| column | type | null | meaning |\n|---|---|---|---|\n", t.name, capital(t.comment))
	for _, c := range t.columns {
		null := ""
		if c.null == "null" {
			null = "yes"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", c.name, c.kind, null, strings.ReplaceAll(c.comment, "|", `\|`))
	}
	b.WriteString("\n")
	for _, rule := range t.rules {
		fmt.Fprintf(b, "- %s\n", rule)
	}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// unquote reads the inside of what MySQL's QUOTE writes.
func unquote(s string) string { return strings.NewReplacer(`\'`, `'`, `\\`, `\`).Replace(s) }
