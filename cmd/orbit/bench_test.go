package main

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

// A small run of every suite, with callers in other processes and two replicas, has all figures, none of failed calls, and leaves no
// database.
func TestBenchMeasures(t *testing.T) {
	t.Setenv(asProgram, "1") // for the processes that it starts
	database := harness.Empty(t)
	before := benchDatabases(t, database)
	out := filepath.Join(t.TempDir(), "figures")
	var got benchReport
	program("bench", "--dsn", database.DSN, "--accept-weak-durability", "--seconds", "0.3", "--callers", "3", "--batch", "1,7", "--replicas", "1,2",
		"--processes", "2", "--workers", "2", "--backlog", "50", "--future", "10", "--rate", "40", "--out", out, "-o", "json").json(t, &got)

	for _, suite := range []string{"idle", "latency", "claim", "submit", "life"} {
		if !slices.ContainsFunc(got.Figures, func(f benchFigure) bool { return f.Suite == suite && (f.Value > 0 || f.P50 > 0) }) {
			t.Errorf("no figure of the suite %s", suite)
		}
	}
	for _, f := range got.Figures {
		if f.F <= 0 {
			t.Errorf("%s: %s has no F beside it", f.Suite, f.Figure)
		}
		if f.Figure == "lives/s" && (f.Value <= 0 || f.PerF <= 0 || f.P50 <= 0 || f.P50 > f.P99 || f.P99 > f.Max) {
			t.Errorf("not a figure: %+v", f)
		}
	}
	if want := 4; countFigures(got.Figures, "lives/s") != want || countFigures(got.Figures, "submitted/s") != want {
		t.Errorf("%d and %d rates, want %d of each", countFigures(got.Figures, "lives/s"), countFigures(got.Figures, "submitted/s"), want)
	}
	wantCSV(t, out+".csv", len(got.Figures))
	wantXML(t, out+".svg")
	if after := benchDatabases(t, database); after != before {
		t.Errorf("%d databases of a bench are left, before it there were %d", after, before)
	}
}

func TestBenchRefusesWeakDurability(t *testing.T) {
	database := harness.Empty(t)
	var flush int
	if err := database.DB.QueryRowContext(t.Context(), "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit").Scan(&flush); err != nil {
		t.Fatal(err)
	}
	if flush == 1 {
		t.Skip("the server of the tests is durable")
	}
	got := program("bench", "--dsn", database.DSN, "--suite", "claim", "--seconds", "0.1", "--out", filepath.Join(t.TempDir(), "figures"))
	got.want(t, exitFailed)
}

func countFigures(figures []benchFigure, name string) (n int) {
	for _, f := range figures {
		if f.Figure == name {
			n++
		}
	}
	return n
}

func benchDatabases(t *testing.T, d *harness.Database) (n int) {
	t.Helper()
	if err := d.DB.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'orbit\_bench\_%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func wantCSV(t *testing.T, name string, figures int) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) != figures+1 {
		t.Errorf("%d lines in the CSV file (%v), want %d figures and a header", len(rows), err, figures)
	}
}

func wantXML(t *testing.T, name string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for d := xml.NewDecoder(file); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the picture is not XML: %v", err)
		}
	}
}
