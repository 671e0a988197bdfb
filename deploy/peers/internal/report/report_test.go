package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) is %v, want %v", c.values, got, c.want)
		}
	}
}

func example() Report {
	return Report{
		Facts:   [][2]string{{"processors", "2"}},
		Systems: [][2]string{{"A & B", "100 workers"}},
		Floors:  []Rate{{System: "F", Rounds: []float64{4000, 5000, 9000}}, {System: "other floor", Rounds: []float64{10000, 10000, 10000}}},
		Lives: []Rate{
			{System: Subject, Load: "64 callers", Tasks: 100, Rounds: []float64{2000, 1000, 3000}},
			{System: "A & B", Load: "100 workers", Tasks: 100, Rounds: []float64{500, 400, 1234567}},
			{System: "A & B", Load: "100 workers", Tasks: 1, Rounds: []float64{250, 250, 250}},
		},
		Latencies: []Latency{{System: "A & B", P50: []float64{1, 2, 3.25}, P99: []float64{10, 30, 20}}},
	}
}

// The table has medians with their spread, multiples of F, and compares with the subject where it has as many tasks in a call.
func TestMarkdown(t *testing.T) {
	got := example().Markdown("assets/p.svg")
	for _, want := range []string{
		"| Orbit | 64 callers | 100 | 2,000 (1,000–3,000) | 0.40 |  |\n",
		"| A & B | 100 workers | 100 | 500 (400–1,234,567) | 0.10 | 4.00× |\n",
		"| A & B | 100 workers | 1 | 250 (250–250) | 0.05 |  |\n",
		"| F |  | | 5,000 (4,000–9,000) | 1.00 | |\n",
		"| A & B | 2.0 (1.0–3.2) | 20.0 (10.0–30.0) |\n",
		"![Lives a second of each system](assets/p.svg)",
		"- processors: 2\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestPictureIsXML(t *testing.T) {
	var b strings.Builder
	if err := example().WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
	}
	if n := strings.Count(b.String(), "<rect x="); n != 5 {
		t.Errorf("%d bars, want 5", n)
	}
}

func TestCSVHasEveryValue(t *testing.T) {
	var b strings.Builder
	if err := example().WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(b.String(), "\n"); lines != 1+3*(2+3+2) {
		t.Errorf("%d lines in\n%s", lines, b.String())
	}
}

func TestReplaceSection(t *testing.T) {
	page := "# Page\n\n" + sectionBegin + "\nold\n" + sectionEnd + "\nrest\n"
	once, err := ReplaceSection(page, "new\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Page\n\n" + sectionBegin + "\nnew\n\n" + sectionEnd + "\nrest\n"; once != want {
		t.Errorf("got %q, want %q", once, want)
	}
	if again, err := ReplaceSection(once, "new\n"); err != nil || again != once {
		t.Errorf("the second time it is %q, %v", again, err)
	}
	for _, page := range []string{"", sectionBegin, sectionEnd + sectionBegin} {
		if _, err := ReplaceSection(page, "new\n"); err == nil {
			t.Errorf("%q was taken for a page with the section", page)
		}
	}
}
