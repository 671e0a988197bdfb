// Package schema owns Orbit's tables: the migrations that lead to them, the check that a program
// fits the database it was pointed at, and the rules every database session keeps.
//
// The files in this directory (platform.sql, pulse.sql, triggers.sql) show the tables as they are
// now; migrations/ holds the steps that lead there, one DDL statement each.
package schema

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

//go:embed fingerprints.json
var fingerprintFile []byte

// step is one migration: a single DDL statement on a single table.
type step struct {
	version   int64
	name      string
	statement string
	checksum  [sha256.Size]byte
	table     string
	before    []string // the table's description before the step; empty when there is no table
	after     []string // and after it
}

// Fingerprint says what one step leaves behind: the one table it touches, described line by line
// as [Describe] does. A step that drops its table leaves no lines.
type Fingerprint struct {
	Version int64    `json:"version"`
	Name    string   `json:"name"`
	Table   string   `json:"table"`
	After   []string `json:"after"`
}

// Target is the version of the last migration this program knows.
func Target() int64 {
	sources, err := ReadSources(migrationFiles)
	if err != nil || len(sources) == 0 {
		return 0
	}
	return sources[len(sources)-1].Version
}

// Source is the text of one migration.
type Source struct {
	Version   int64
	Name      string
	Statement string // without goose's annotations, comment lines and the closing semicolon
}

// ReadSources reads migrations/*.sql of files, by version. Versions count from 1 without a gap.
func ReadSources(files fs.FS) ([]Source, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	sources := make([]Source, 0, len(names))
	for i, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		number, name, ok := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		version, numberErr := strconv.ParseInt(number, 10, 64)
		if !ok || numberErr != nil || version != int64(i)+1 {
			return nil, fmt.Errorf("migrations/%s: want number %05d, an underscore and a name", path.Base(file), i+1)
		}
		statements := Split(string(text))
		if len(statements) != 1 {
			return nil, fmt.Errorf("migrations/%s: %d statements; a step is exactly one", path.Base(file), len(statements))
		}
		sources = append(sources, Source{Version: version, Name: name, Statement: statements[0]})
	}
	return sources, nil
}

// Split cuts a file of SQL into its statements. A statement ends with a semicolon before an empty
// line or the end of the file, so that the body of a trigger may hold semicolons; lines that begin
// with -- are left out.
func Split(text string) []string {
	var statements []string
	var lines []string
	end := func() {
		statement := strings.TrimSpace(strings.Join(lines, "\n"))
		if statement = strings.TrimSuffix(statement, ";"); statement != "" {
			statements = append(statements, statement)
		}
		lines = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case strings.HasPrefix(line, "--"):
		case line == "" && len(lines) > 0 && strings.HasSuffix(lines[len(lines)-1], ";"):
			end()
		default:
			lines = append(lines, line)
		}
	}
	end()
	return statements
}

func loadSteps() ([]step, error) {
	sources, err := ReadSources(migrationFiles)
	if err != nil {
		return nil, err
	}
	fingerprints, err := Fingerprints()
	if err != nil {
		return nil, err
	}
	if len(fingerprints) != len(sources) {
		return nil, fmt.Errorf("fingerprints.json describes %d steps, migrations/ holds %d", len(fingerprints), len(sources))
	}
	steps := make([]step, len(sources))
	tables := map[string][]string{}
	for i, source := range sources {
		f := fingerprints[i]
		if f.Version != source.Version || f.Name != source.Name {
			return nil, fmt.Errorf("fingerprints.json: entry %d is of step %05d_%s, migrations/ has %05d_%s",
				i, f.Version, f.Name, source.Version, source.Name)
		}
		steps[i] = step{
			version:   source.Version,
			name:      source.Name,
			statement: source.Statement,
			checksum:  checksum(source.Statement),
			table:     f.Table,
			before:    tables[f.Table],
			after:     f.After,
		}
		tables[f.Table] = f.After
	}
	return steps, nil
}
