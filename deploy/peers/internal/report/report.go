// Package report turns the figures of several rounds into a table, a picture and a section of a page.
package report

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Subject is the system that the others are compared with.
const Subject = "Orbit"

// Report is what a run found. Every series has one value for each round.
type Report struct {
	Facts     [][2]string // what the figures depend on, by name
	Systems   [][2]string // how each system was set up, by name
	Floors    []Rate      // of the databases themselves; the first is F
	Lives     []Rate
	Latencies []Latency // from submit to start
}

// Rate is a number a second.
type Rate struct {
	System string
	Load   string
	Tasks  int // in a call
	Rounds []float64
}

// Latency is milliseconds.
type Latency struct {
	System   string
	P50, P99 []float64
}

// Median is the middle value, or the mean of the two in the middle. It is 0 where there is no value.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func (r Report) perF(rate Rate) float64 { return Median(rate.Rounds) / Median(r.Floors[0].Rounds) }

// against is how many times as fast the subject is with as many tasks in a call; of the subject itself there is none.
func (r Report) against(rate Rate) string {
	for _, s := range r.Lives {
		if s.System == Subject && s.Tasks == rate.Tasks && rate.System != Subject {
			return fmt.Sprintf("%.2f×", Median(s.Rounds)/Median(rate.Rounds))
		}
	}
	return ""
}

// Markdown is the text of the section. picture is the picture's path as the page links it.
func (r Report) Markdown(picture string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rounds, each of all systems one after the other; the median, and (least–most).\n\n", len(r.Floors[0].Rounds))
	b.WriteString("| | load | tasks a call | a second | in F | Orbit against it |\n|---|---|---|---|---|---|\n")
	for _, rate := range r.Lives {
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %.2f | %s |\n", rate.System, rate.Load, rate.Tasks, spread(rate.Rounds, Whole), r.perF(rate), r.against(rate))
	}
	for _, rate := range r.Floors {
		fmt.Fprintf(&b, "| %s | %s | | %s | %.2f | |\n", rate.System, rate.Load, spread(rate.Rounds, Whole), r.perF(rate))
	}
	if len(r.Latencies) > 0 {
		b.WriteString("\n| submit → start at 50 a second | p50 ms | p99 ms |\n|---|---|---|\n")
		for _, l := range r.Latencies {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", l.System, spread(l.P50, tenths), spread(l.P99, tenths))
		}
	}
	fmt.Fprintf(&b, "\n![Lives a second of each system](%s)\n", picture)
	for _, list := range []struct {
		title string
		rows  [][2]string
	}{{"How each was set up:", r.Systems}, {"The machine and what ran on it:", r.Facts}} {
		fmt.Fprintf(&b, "\n%s\n\n", list.title)
		for _, row := range list.rows {
			fmt.Fprintf(&b, "- %s: %s\n", row[0], row[1])
		}
	}
	return b.String()
}

// spread is "median (least–most)".
func spread(values []float64, format func(float64) string) string {
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s–%s)", format(Median(values)), format(slices.Min(values)), format(slices.Max(values)))
}

func tenths(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// Whole is without decimal places, and has a comma between each three digits.
func Whole(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// WriteCSV writes one line for each value of each round.
func (r Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"system", "load", "tasks_a_call", "figure", "round", "value"}) // Flush tells
	line := func(system, load string, tasks int, figure string, values []float64) {
		for i, v := range values {
			_ = out.Write([]string{system, load, strconv.Itoa(tasks), figure, strconv.Itoa(i + 1), strconv.FormatFloat(v, 'f', 3, 64)})
		}
	}
	for _, f := range r.Floors {
		line(f.System, f.Load, 1, "rows_per_second", f.Rounds)
	}
	for _, l := range r.Lives {
		line(l.System, l.Load, l.Tasks, "lives_per_second", l.Rounds)
	}
	for _, l := range r.Latencies {
		line(l.System, "50 a second", 1, "submit_to_start_p50_ms", l.P50)
		line(l.System, "50 a second", 1, "submit_to_start_p99_ms", l.P99)
	}
	out.Flush()
	return out.Error()
}

const (
	sectionBegin = "<!-- peers: written by make bench-peers -->\n"
	sectionEnd   = "<!-- end of peers -->\n"
)

// ReplaceSection gives the page with another text between the two comments that mark the section, which stay.
func ReplaceSection(page, section string) (string, error) {
	before, rest, begun := strings.Cut(page, sectionBegin)
	_, after, ended := strings.Cut(rest, sectionEnd)
	if !begun || !ended {
		return "", errors.New("the page has no section between " + strings.TrimSpace(sectionBegin) + " and " + strings.TrimSpace(sectionEnd))
	}
	return before + sectionBegin + "\n" + section + "\n" + sectionEnd + after, nil
}
