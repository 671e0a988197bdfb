package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// benchReport is everything that a run found.
type benchReport struct {
	Machine [][]string    `json:"machine"`
	Server  [][]string    `json:"server"`
	Figures []benchFigure `json:"figures"`
}

// benchFigure is one measured number, or the times of one kind of call, or both. Times are microseconds.
type benchFigure struct {
	Suite    string `json:"suite"`
	Figure   string `json:"figure"`
	Replicas int    `json:"replicas,omitempty"`
	Callers  int    `json:"callers,omitempty"`
	Batch    int    `json:"batch,omitempty"`

	Value  float64 `json:"value,omitempty"`
	Places int     `json:"-"` // decimal places of the value
	F      float64 `json:"f"`
	PerF   float64 `json:"per_f,omitempty"` // of figures that are a rate of tasks or rows
	Note   string  `json:"note,omitempty"`

	Calls int64 `json:"calls,omitempty"`
	P50   int64 `json:"p50_us,omitempty"`
	P90   int64 `json:"p90_us,omitempty"`
	P99   int64 `json:"p99_us,omitempty"`
	Max   int64 `json:"max_us,omitempty"`

	CallerCores  float64 `json:"caller_cores,omitempty"`
	ReplicaCores float64 `json:"replica_cores,omitempty"`
	ServerCores  float64 `json:"database_cores,omitempty"`

	Failures     int64  `json:"failures,omitempty"`
	FirstFailure string `json:"first_failure,omitempty"`

	times *hdrhistogram.Histogram
}

var benchHeader = []string{"SUITE", "FIGURE", "REPLICAS", "CALLERS", "BATCH", "VALUE", "PER F", "P50 MS", "P90 MS", "P99 MS", "MAX MS", "CORES CALLERS+REPLICAS+DATABASE", "NOTE"}

func (f *benchFigure) row() []string {
	cores := ""
	if f.ReplicaCores > 0 {
		cores = fmt.Sprintf("%.2f+%.2f", f.CallerCores, f.ReplicaCores)
	}
	if f.ServerCores > 0 {
		cores += fmt.Sprintf("+%.2f", f.ServerCores)
	}
	note := f.Note
	if f.Failures > 0 {
		note = strings.TrimSpace(note + fmt.Sprintf(" %d failures", f.Failures))
	}
	return []string{f.Suite, f.Figure, nonZero(f.Replicas), nonZero(f.Callers), nonZero(f.Batch), decimal(f.Value, f.Places), decimal(f.PerF, 2),
		millis(f.P50), millis(f.P90), millis(f.P99), millis(f.Max), cores, note}
}

func decimal(v float64, places int) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', places, 64)
}

func millis(us int64) string { return decimal(float64(us)/1000, 1) }

func (r benchReport) rows() [][]string {
	rows := make([][]string, len(r.Figures))
	for i := range r.Figures {
		rows[i] = r.Figures[i].row()
	}
	return rows
}

// verdict is an error if something failed, because a figure of failing calls is none.
func (r benchReport) verdict() error {
	var failures int64
	for _, f := range r.Figures {
		failures += f.Failures
	}
	if failures > 0 {
		return fmt.Errorf("%d calls or items failed", failures)
	}
	return nil
}

func (r benchReport) writeCSV(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	w := csv.NewWriter(file)
	_ = w.Write([]string{"suite", "figure", "replicas", "callers", "batch", "value", "f", "per_f", "calls", "p50_us", "p90_us", "p99_us", "max_us", "caller_cores", "replica_cores", "database_cores", "failures", "note"})
	for _, f := range r.Figures {
		_ = w.Write([]string{f.Suite, f.Figure, nonZero(f.Replicas), nonZero(f.Callers), nonZero(f.Batch), decimal(f.Value, 3), decimal(f.F, 1), decimal(f.PerF, 3),
			whole(f.Calls), whole(f.P50), whole(f.P90), whole(f.P99), whole(f.Max), decimal(f.CallerCores, 3), decimal(f.ReplicaCores, 3), decimal(f.ServerCores, 3), whole(f.Failures), f.Note})
	}
	w.Flush()
	return errors.Join(w.Error(), file.Close())
}

func whole(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// describeMachine tells what the callers, the replicas and, where it is local, the database share.
func describeMachine() [][]string {
	rows := [][]string{{"orbit", thisBuild().Version}, {"go", runtime.Version()}, {"system", runtime.GOOS + "/" + runtime.GOARCH}, {"processors", formatInt(runtime.NumCPU())}}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		rows = append(rows, []string{"load before", strings.Join(strings.Fields(string(load))[:3], " ")})
	}
	return rows
}
