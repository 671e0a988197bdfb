package timetable

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The oracle walks the clock. It looks at what the clocks of a zone show at every step of real time, and takes from that alone which wall
// times exist, how often, and where the clocks jump; it shares neither parser nor search with what it judges.

// oracleCron is a cron expression as the manual page of Vixie cron explains it.
type oracleCron struct {
	allowed [6]map[int]bool // second, minute, hour, day of month, month, day of week
	star    [6]bool
}

var oracleNames = map[string]int{
	"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
	"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6,
}

func oracleParse(text string) oracleCron {
	parts := strings.Fields(text)
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	lowest, highest := [6]int{0, 0, 0, 1, 1, 0}, [6]int{59, 59, 23, 31, 12, 7}
	number := func(s string) int {
		if n, ok := oracleNames[strings.ToLower(s)]; ok {
			return n
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		return n
	}
	var o oracleCron
	for i, p := range parts {
		o.allowed[i], o.star[i] = map[int]bool{}, strings.HasPrefix(p, "*")
		for item := range strings.SplitSeq(p, ",") {
			span, stepText, stepped := strings.Cut(item, "/")
			low, high, step := lowest[i], highest[i], 1
			if i == 5 && span == "*" {
				high = 6
			}
			if stepped {
				step = number(stepText)
			}
			if a, b, isRange := strings.Cut(span, "-"); isRange {
				low, high = number(a), number(b)
			} else if span != "*" {
				low = number(a)
				if !stepped {
					high = low
				} else if i == 5 {
					high = 6
				}
			}
			for n := low; n <= high; n += step {
				if i == 5 && n == 7 {
					o.allowed[i][0] = true
				}
				o.allowed[i][n] = true
			}
		}
	}
	return o
}

func (o oracleCron) matches(wall time.Time) bool {
	if !o.allowed[0][wall.Second()] || !o.allowed[1][wall.Minute()] || !o.allowed[2][wall.Hour()] || !o.allowed[4][int(wall.Month())] {
		return false
	}
	dom, dow := o.allowed[3][wall.Day()], o.allowed[5][int(wall.Weekday())]
	if o.star[3] || o.star[5] {
		return dom && dow
	}
	return dom || dow
}

func (o oracleCron) moving() bool { return o.star[0] || o.star[1] || o.star[2] }

// walk is what the clocks of a zone show, step by step.
type walk struct {
	from, step, margin int64
	shown              []int64 // wall time at from + i·step
	lowest             int64   // wall time that was shown
	at                 [][]int // steps that show the wall time lowest + i·step; none in a gap
}

// newWalk looks about an instant, near it to both sides. The margin beyond is looked at only to judge what is near.
func newWalk(z *time.Location, about, near, margin, step int64) *walk {
	w := &walk{from: about - near - margin, step: step, margin: margin}
	for t := w.from; t < about+near+margin; t += step {
		local := time.Unix(t, 0).In(z)
		wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC).Unix()
		w.shown = append(w.shown, wall)
	}
	w.lowest = slices.Min(w.shown)
	w.at = make([][]int, (slices.Max(w.shown)-w.lowest)/step+1)
	for i, wall := range w.shown {
		k := (wall - w.lowest) / step
		w.at[k] = append(w.at[k], i)
	}
	return w
}

// matching tells of each wall time of the walk, gaps included, whether it is in a set.
func (w *walk) matching(matches func(time.Time) bool) []bool {
	in := make([]bool, len(w.at))
	for k := range in {
		in[k] = matches(time.Unix(w.lowest+int64(k)*w.step, 0).UTC())
	}
	return in
}

// fires gives what a set of wall times fires at.
func (w *walk) fires(in []bool, moving bool, gap Gap, overlap Overlap) []int64 {
	fire := make([]bool, len(w.shown))
	for k, at := range w.at {
		switch {
		case !in[k]:
		case len(at) == 0:
			if !moving && gap == GapShift {
				fire[w.jumpOver(w.lowest+int64(k)*w.step)] = true
			}
		case moving || overlap == OverlapBoth:
			for _, i := range at {
				fire[i] = true
			}
		case overlap == OverlapFirst:
			fire[at[0]] = true
		default:
			fire[at[len(at)-1]] = true
		}
	}
	var fires []int64
	for i, yes := range fire {
		if t := w.from + int64(i)*w.step; yes && t >= w.from+w.margin && t < w.end() {
			fires = append(fires, t)
		}
	}
	return fires
}

func (w *walk) end() int64 { return w.from + int64(len(w.shown))*w.step - w.margin }

// jumpOver gives the step at which the clocks first jumped over a wall time.
func (w *walk) jumpOver(wall int64) int {
	for i := 1; i < len(w.shown); i++ {
		if w.shown[i-1] < wall && w.shown[i] > wall {
			return i
		}
	}
	return -1
}

// marginOf is enough for what the clocks skip or repeat at a change.
func marginOf(z *time.Location, change int64) int64 {
	_, before := time.Unix(change-3600, 0).In(z).Zone()
	_, after := time.Unix(change, 0).In(z).Zone()
	return 3*3600 + int64(max(after-before, before-after))
}

// transitions finds the changes of a zone's clocks from 2000 to 2040, to the hour, by looking every hour.
func transitions(z *time.Location) []int64 {
	var found []int64
	first, last := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	_, before := time.Unix(first, 0).In(z).Zone()
	for t := first; t < last; t += 3600 {
		if _, now := time.Unix(t, 0).In(z).Zone(); now != before {
			found, before = append(found, t), now
		}
	}
	return found
}

var knownChanges sync.Map

// changesOf remembers transitions, for who asks for the same zones often.
func changesOf(z *time.Location) []int64 {
	known, ok := knownChanges.Load(z.String())
	if !ok {
		known, _ = knownChanges.LoadOrStore(z.String(), transitions(z))
	}
	return known.([]int64)
}

// distinctZones gives one name for each different zone of the database, and checks that every name loads.
var distinctZones = sync.OnceValues(func() ([]string, error) {
	files, err := zoneFiles()
	if err != nil {
		return nil, err
	}
	var names []string
	var seen [][]byte
	for name, f := range files {
		if _, err := Zone(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		data, err := readAll(f)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(seen, func(d []byte) bool { return bytes.Equal(d, data) }) {
			seen, names = append(seen, data), append(names, name)
		}
	}
	// Which of several names stands for a zone is chance; the order, and so the sample, follows what the clocks do.
	slices.Sort(names)
	return names, nil
})

// notable are zones whose clocks do what few others do.
var notable = []string{
	"Australia/Lord_Howe",             // half an hour
	"Antarctica/Troll",                // two hours
	"Pacific/Apia", "Pacific/Fakaofo", // a day that was not
	"America/Caracas", "Asia/Pyongyang", // half an hour for good, both ways
	"Asia/Kathmandu", "Asia/Kolkata", // never
	"Africa/Casablanca", "Africa/Cairo", // several times a year
	"Asia/Gaza", "America/St_Johns", // at one minute past midnight
	"America/Havana", "America/Asuncion", // at midnight
	"Asia/Tehran", "Europe/Dublin", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Antarctica/Casey", "Europe/Volgograd", "UTC",
}

var oracleExpressions = []string{
	"* * * * *", "*/15 * * * *", "0 * * * *", "*/30 2 * * *", "17 */2 * * *", "*/7 1-3 * * *",
	"30 2 * * *", "0,15,30,45 0-3 * * *", "0 0 * * *", "59 23 * * *", "30 1 * * *", "5 0 1 * *",
	"0 12 * * sun", "30 2 1-7 * sun", "30 2 */2 * 0", "0 3 29 2 *", "15,45 0-23 * * 7", "0-59 0-23 * * *", "0 0,12 1,15,31 * fri",
}

// allZones runs the oracle over every zone and every change of clocks, some minutes long; otherwise a sample is taken.
var allZones = os.Getenv("ORBIT_TEST_ALL_ZONES") != ""

func sampleZones(t *testing.T) []string {
	zones, err := distinctZones()
	if err != nil {
		t.Fatal(err)
	}
	if allZones {
		return zones
	}
	sample := slices.Clone(notable)
	for i := 0; i < len(zones); i += 16 {
		sample = append(sample, zones[i])
	}
	slices.Sort(sample)
	return slices.Compact(sample)
}

func TestFiresAreThoseOfTheWalkedClock(t *testing.T) {
	for _, name := range sampleZones(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z, err := Zone(name)
			if err != nil {
				t.Fatal(err)
			}
			changes := transitions(z)
			changes = append(changes, time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC).Unix()) // and a time when nothing changes
			for i, at := range changes {
				if allZones || i%9 == 0 || i == len(changes)-1 {
					checkAround(t, name, z, at)
				}
			}
		})
	}
}

func checkAround(t *testing.T, name string, z *time.Location, at int64) {
	t.Helper()
	w := newWalk(z, at, 15*3600, marginOf(z, at), 60)
	for _, text := range oracleExpressions {
		o := oracleParse(text)
		in := w.matching(o.matches)
		for _, gap := range []Gap{GapShift, GapSkip} {
			for _, overlap := range []Overlap{OverlapFirst, OverlapSecond, OverlapBoth} {
				if !o.moving() || gap == GapShift && overlap == OverlapFirst {
					compare(t, Spec{Cron: text, Zone: name, Gap: gap, Overlap: overlap}, w, w.fires(in, o.moving(), gap, overlap))
				}
			}
		}
	}
}

func compare(t interface {
	Helper()
	Fatalf(string, ...any)
}, s Spec, w *walk, want []int64) {
	t.Helper()
	tt, err := New(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	var got []int64
	for at := time.Unix(w.from+w.margin-1, 0); ; {
		next, ok := tt.Next(at)
		if !ok || next.Unix() >= w.end() {
			break
		}
		got, at = append(got, next.Unix()), next
	}
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			show := func(l []int64) string {
				if i >= len(l) {
					return "none"
				}
				return time.Unix(l[i], 0).In(tt.Location()).Format(time.RFC3339)
			}
			t.Fatalf("%+v: fire %d is %s, the walked clock says %s", s, i, show(got), show(want))
		}
	}
}

// The same to the second, about the change itself.
func TestFiresToTheSecondAreThoseOfTheWalkedClock(t *testing.T) {
	for i, name := range sampleZones(t) {
		if !allZones && i%4 != 0 && name != "Australia/Lord_Howe" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z, err := Zone(name)
			if err != nil {
				t.Fatal(err)
			}
			changes := transitions(z)
			for i, at := range changes {
				if i != 0 && i != len(changes)-1 {
					continue
				}
				w := newWalk(z, at, 2*3600, marginOf(z, at), 1)
				for _, text := range []string{"*/10 * * * * *", "15 30 2 * * *", "0,20,40 0-59/7 0-23 * * *", "59 59 * * * *"} {
					o := oracleParse(text)
					compare(t, Spec{Cron: text, Zone: name, Gap: GapShift, Overlap: OverlapFirst}, w, w.fires(w.matching(o.matches), o.moving(), GapShift, OverlapFirst))
				}
			}
		})
	}
}

// Any expression, any zone, any change of clocks.
func TestAnyExpressionFiresAsTheWalkedClock(t *testing.T) {
	zones, err := distinctZones()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom(zones), rapid.SampledFrom(notable)).Draw(t, "zone")
		z, err := Zone(name)
		if err != nil {
			t.Fatal(err)
		}
		at := 3600 * rapid.Int64Range(946684800/3600, 2208988800/3600).Draw(t, "at")
		if changes := changesOf(z); len(changes) > 0 {
			at = rapid.SampledFrom(changes).Draw(t, "change")
		}
		s := Spec{Zone: name, Gap: rapid.SampledFrom([]Gap{GapShift, GapSkip}).Draw(t, "gap"),
			Overlap: rapid.SampledFrom([]Overlap{OverlapFirst, OverlapSecond, OverlapBoth}).Draw(t, "overlap")}
		w := newWalk(z, at, 20*3600, marginOf(z, at), 60)
		var matches func(time.Time) bool
		var moving bool
		if rapid.Bool().Draw(t, "calendar") {
			chosen := map[int64]bool{}
			for range rapid.IntRange(1, 40).Draw(t, "entries") {
				wall := w.lowest + 60*rapid.Int64Range(0, int64(len(w.at)-1)).Draw(t, "entry")
				chosen[wall] = true
				s.Calendar = append(s.Calendar, time.Unix(wall, 0).UTC().Format("2006-01-02T15:04"))
			}
			matches = func(wall time.Time) bool { return chosen[wall.Unix()] }
		} else {
			s.Cron = strings.Join([]string{drawField(t, 0, 59), drawField(t, 0, 23), drawField(t, 1, 31), drawField(t, 1, 12), drawField(t, 0, 7)}, " ")
			o := oracleParse(s.Cron)
			matches, moving = o.matches, o.moving()
		}
		compare(t, s, w, w.fires(w.matching(matches), moving, s.Gap, s.Overlap))
	})
}

func drawField(t *rapid.T, low, high int) string {
	item := rapid.Custom(func(t *rapid.T) string {
		a, b := rapid.IntRange(low, high).Draw(t, "a"), rapid.IntRange(low, high).Draw(t, "b")
		a, b = min(a, b), max(a, b)
		step := rapid.IntRange(1, max(1, (b-a)/2)).Draw(t, "step")
		switch rapid.IntRange(0, 4).Draw(t, "form") {
		case 0:
			return strconv.Itoa(a)
		case 1:
			return fmt.Sprintf("%d-%d", a, b)
		case 2:
			return fmt.Sprintf("%d-%d/%d", a, b, cmp.Or(step, 1))
		case 3:
			return fmt.Sprintf("*/%d", cmp.Or(step, 1))
		}
		return "*"
	})
	return strings.Join(rapid.SliceOfN(item, 1, 3).Draw(t, "items"), ",")
}
