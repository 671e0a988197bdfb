package main

import (
	"strings"
	"testing"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

// The rows are made for generated statements, whose parameters change with the tables.
func TestRowsFitTheirStatements(t *testing.T) {
	b := &bench{}
	task := b.tasks(1, orbit.NewID)[0]
	for query, row := range map[string][]any{
		pulsedb.InsertTask:    task,
		pulsedb.InsertAttempt: b.attempt(orbit.ID{}, task[1]),
		pulsedb.InsertReady:   b.ready(task),
		platformdb.InsertKey:  keyVariants[0].row(b),
	} {
		if want := strings.Count(query, "?"); len(row) != want {
			t.Errorf("%d values for %d parameters of %.40s", len(row), want, query)
		}
	}
}
