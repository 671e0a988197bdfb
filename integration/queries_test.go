package integration_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// The generator takes a query's expressions on trust: only a server says whether their columns and functions exist.
func TestEveryQueryPrepares(t *testing.T) {
	database := harness.New(t)
	queries := generatedQueries(t)
	if len(queries) == 0 {
		t.Fatal("no queries in gen/db")
	}
	for name, query := range queries {
		t.Run(name, func(t *testing.T) {
			statement, err := database.DB.PrepareContext(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			defer statement.Close()
		})
	}
}

// generatedQueries are the constants that hold a query, by package and name.
func generatedQueries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../gen/db/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			constant, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, value := range constant.Values {
				literal, ok := value.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(text, "-- name: ") {
					queries[file.Name.Name+"."+constant.Names[i].Name] = text
				}
			}
			return true
		})
	}
	return queries
}
