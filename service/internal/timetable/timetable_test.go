package timetable

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
)

// from gives the first n fires after an instant, as the clocks of the zone show them.
func from(t *testing.T, s Spec, after string, n int) []string {
	t.Helper()
	if s.Zone == "" {
		s.Zone = "UTC"
	}
	s.Gap, s.Overlap = orDefault(s.Gap, GapShift), orDefault(s.Overlap, OverlapFirst)
	tt, err := New(s)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	at, err := time.Parse(time.RFC3339, after)
	if err != nil {
		t.Fatal(err)
	}
	var fires []string
	for range n {
		next, ok := tt.Next(at)
		if !ok {
			break
		}
		if !next.After(at) {
			t.Fatalf("%+v: after %s comes %s", s, at, next)
		}
		at = next
		fires = append(fires, at.In(tt.Location()).Format(time.RFC3339Nano))
	}
	return fires
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func TestFixedAndMovingTimesWhereClocksChange(t *testing.T) {
	berlin := "Europe/Berlin"
	spring, autumn := "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"
	for name, c := range map[string]struct {
		spec  Spec
		after string
		want  []string
	}{
		"a skipped time fires when the gap ends":      {Spec{Cron: "30 2 * * *", Zone: berlin}, spring, []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		"or not":                                      {Spec{Cron: "30 2 * * *", Zone: berlin, Gap: GapSkip}, spring, []string{"2026-03-30T02:30:00+02:00"}},
		"many skipped times are one":                  {Spec{Cron: "0,20,40 2 * * *", Zone: berlin}, spring, []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		"and one with the time at which the gap ends": {Spec{Cron: "0 2,3 * * *", Zone: berlin}, spring, []string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		"a repeated time fires the first time":        {Spec{Cron: "30 2 * * *", Zone: berlin}, autumn, []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		"or the second":                               {Spec{Cron: "30 2 * * *", Zone: berlin, Overlap: OverlapSecond}, autumn, []string{"2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		"or both":                                     {Spec{Cron: "30 2 * * *", Zone: berlin, Overlap: OverlapBoth}, autumn, []string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		"every half hour stays half an hour":          {Spec{Cron: "*/30 * * * *", Zone: berlin}, "2026-10-25T00:00:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"}},
		"and over a gap":                              {Spec{Cron: "*/30 * * * *", Zone: berlin}, "2026-03-29T00:00:00Z", []string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"}},
		"every hour, whatever the clocks do":          {Spec{Cron: "@hourly", Zone: berlin}, "2026-10-24T23:30:00Z", []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"}},
		"half an hour back":                           {Spec{Cron: "45 1 * * *", Zone: "Australia/Lord_Howe"}, "2026-04-04T12:00:00Z", []string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		"half an hour on":                             {Spec{Cron: "15 2 * * *", Zone: "Australia/Lord_Howe"}, "2026-10-03T12:00:00Z", []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		"a day that was not":                          {Spec{Cron: "0 12 30 12 *", Zone: "Pacific/Apia"}, "2011-12-01T00:00:00Z", []string{"2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00"}},
		"a calendar is of fixed times":                {Spec{Calendar: []string{"2026-10-25T02:30", "2026-03-29T02:30:15", "2026-03-29T02:30:15"}, Zone: berlin}, "2026-01-01T00:00:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-10-25T02:30:00+02:00"}},
		"one that is to come in 100 years":            {Spec{Calendar: []string{"2126-07-01T00:00"}, Zone: berlin}, spring, []string{"2126-07-01T00:00:00+02:00"}},
	} {
		if got := from(t, c.spec, c.after, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestExpressionsMeanWhatVixieCronMakesOfThem(t *testing.T) {
	for name, c := range map[string]struct {
		cron string
		want []string
	}{
		"either day if both are named":      {"0 0 13 * fri", []string{"2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"}},
		"both days if one begins with *":    {"0 0 */13 * fri", []string{"2026-02-27", "2026-03-27", "2026-05-01", "2026-08-14"}},
		"both, the other way round":         {"0 0 1 * */2", []string{"2026-02-01", "2026-03-01", "2026-05-01"}[:2]},
		"7 is Sunday":                       {"0 0 * * 7", []string{"2026-01-04", "2026-01-11"}},
		"names, ranges and lists":           {"0 0 * jan,DEC Mon-Wed,sat", []string{"2026-01-03", "2026-01-05", "2026-01-06", "2026-01-07", "2026-01-10"}},
		"a range over the end of the week":  {"0 0 * * sat-mon", []string{"2026-01-03", "2026-01-04", "2026-01-05", "2026-01-10"}},
		"29 February":                       {"0 0 29 2 *", []string{"2028-02-29", "2032-02-29"}},
		"29 February on a Sunday":           {"0 0 29 2 */7", []string{"2032-02-29", "2060-02-29"}},
		"31 of the months that have it":     {"@monthly", []string{"2026-02-01", "2026-03-01"}},
		"the first day of the year, macros": {"@yearly", []string{"2027-01-01", "2028-01-01"}},
		"the week begins on Sunday":         {"@weekly", []string{"2026-01-04"}},
	} {
		var got []string
		for _, at := range from(t, Spec{Cron: c.cron}, "2026-01-01T00:00:00Z", len(c.want)) {
			day, _ := strings.CutSuffix(at, "T00:00:00Z")
			got = append(got, day)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s (%s): %v, want %v", name, c.cron, got, c.want)
		}
	}
	if got := from(t, Spec{Cron: "*/20 59 23 31 12 *"}, "2026-12-31T23:59:00Z", 3); !slices.Equal(got, []string{"2026-12-31T23:59:20Z", "2026-12-31T23:59:40Z", "2027-12-31T23:59:00Z"}) {
		t.Errorf("seconds: %v", got)
	}
	if got := from(t, Spec{Cron: "5/20 * * * *"}, "2026-01-01T00:00:00Z", 4); !slices.Equal(got, []string{"2026-01-01T00:05:00Z", "2026-01-01T00:25:00Z", "2026-01-01T00:45:00Z", "2026-01-01T01:05:00Z"}) {
		t.Errorf("a step from a number: %v", got)
	}
}

func TestIntervalsKeepTheirPhaseWhateverTheClocksDo(t *testing.T) {
	at := func(s string) *time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return &v
	}
	for name, c := range map[string]struct {
		spec  Spec
		after string
		want  []string
	}{
		"from 1970":             {Spec{EveryMs: 600_000}, "2026-01-01T00:09:59Z", []string{"2026-01-01T00:10:00Z", "2026-01-01T00:20:00Z"}},
		"with a phase":          {Spec{EveryMs: 600_000, PhaseMs: 61_500}, "2026-01-01T00:00:00Z", []string{"2026-01-01T00:01:01.5Z", "2026-01-01T00:11:01.5Z"}},
		"at itself comes later": {Spec{EveryMs: 1000}, "2026-01-01T00:00:00Z", []string{"2026-01-01T00:00:01Z"}},
		"@every is an interval": {Spec{Cron: "@every 1h30m"}, "1970-01-01T00:00:00Z", []string{"1970-01-01T01:30:00Z", "1970-01-01T03:00:00Z"}},
		"in a zone":             {Spec{EveryMs: 3_600_000, Zone: "Europe/Berlin"}, "2026-03-29T00:30:00Z", []string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"}},
		"within bounds":         {Spec{EveryMs: 3_600_000, StartsAt: at("2026-05-01T02:00:00Z"), EndsAt: at("2026-05-01T04:00:00Z")}, "2026-01-01T00:00:00Z", []string{"2026-05-01T02:00:00Z", "2026-05-01T03:00:00Z"}},
		"once":                  {Spec{At: at("2026-05-01T02:00:00Z")}, "2026-05-01T01:59:59Z", []string{"2026-05-01T02:00:00Z"}},
		"once is over":          {Spec{At: at("2026-05-01T02:00:00Z")}, "2026-05-01T02:00:00Z", nil},
		"a calendar ends":       {Spec{Calendar: []string{"2026-05-01T02:00"}}, "2026-05-01T02:00:00Z", nil},
		"never":                 {Spec{Cron: "0 0 30 2 *", Zone: "America/New_York"}, "2026-01-01T00:00:00Z", nil},
	} {
		if got := from(t, c.spec, c.after, max(2, len(c.want)))[:min(len(c.want), 2)]; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if len(c.want) == 0 || name == "within bounds" {
			if got := from(t, c.spec, c.after, 3); len(got) != len(c.want) {
				t.Errorf("%s: fires at %v, want %v and no more", name, got, c.want)
			}
		}
	}
}

func TestWhatIsNoTimetableIsRefusedByItsMember(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		spec   Spec
		member string
	}{
		{Spec{}, "cron"},
		{Spec{Cron: "* * * * *", EveryMs: 1000}, "cron"},
		{Spec{Cron: "* * * *"}, "cron"},
		{Spec{Cron: "* * * * * * *"}, "cron"},
		{Spec{Cron: "60 * * * *"}, "cron"},
		{Spec{Cron: "* 24 * * *"}, "cron"},
		{Spec{Cron: "* * 0 * *"}, "cron"},
		{Spec{Cron: "* * * 13 *"}, "cron"},
		{Spec{Cron: "* * * * 8"}, "cron"},
		{Spec{Cron: "*-5 * * * *"}, "cron"},
		{Spec{Cron: "1,,2 * * * *"}, "cron"},
		{Spec{Cron: "1-2-3 * * * *"}, "cron"},
		{Spec{Cron: "*/0 * * * *"}, "cron"},
		{Spec{Cron: "* * L * *"}, "cron"},
		{Spec{Cron: "* * * * foo"}, "cron"},
		{Spec{Cron: "TZ=UTC * * * * *"}, "cron"},
		{Spec{Cron: "@reboot"}, "cron"},
		{Spec{Cron: "@every 10ms"}, "cron"},
		{Spec{Cron: "@every soon"}, "cron"},
		{Spec{Cron: strings.Repeat("1,", 200) + "1 * * * *"}, "cron"},
		{Spec{EveryMs: 999}, "every_ms"},
		{Spec{EveryMs: -1}, "every_ms"},
		{Spec{EveryMs: 1000, PhaseMs: 1000}, "phase_ms"},
		{Spec{Cron: "* * * * *", PhaseMs: 1}, "phase_ms"},
		{Spec{Calendar: []string{"2026-02-30T00:00"}}, "calendar"},
		{Spec{Calendar: []string{"2026-02-01T00:00:00.5"}}, "calendar"},
		{Spec{Calendar: []string{"2026-02-01"}}, "calendar"},
		{Spec{Cron: "* * * * *", Zone: "Europe/berlin"}, "zone"},
		{Spec{Cron: "* * * * *", Zone: "Local"}, "zone"},
		{Spec{Cron: "* * * * *", Gap: "x"}, "gap"},
		{Spec{Cron: "* * * * *", Overlap: "x"}, "overlap"},
		{Spec{Cron: "* * * * *", StartsAt: &now, EndsAt: &now}, "ends_at"},
	} {
		s := c.spec
		s.Zone, s.Gap, s.Overlap = orDefault(s.Zone, "UTC"), orDefault(s.Gap, GapShift), orDefault(s.Overlap, OverlapFirst)
		_, err := New(s)
		var invalid *Invalid
		if !errors.As(err, &invalid) || invalid.Member != c.member || invalid.Code == "" || invalid.Detail == "" {
			t.Errorf("%+v: %v, want a refusal of %s", s, err, c.member)
		}
	}
}

func TestJitterIsAFunctionOfScheduleAndInstant(t *testing.T) {
	a, b := orbit.ID{1}, orbit.ID{2}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const span = 10 * time.Second
	differ, sum := 0, time.Duration(0)
	for i := range 1000 {
		at := at.Add(time.Duration(i) * time.Minute)
		j := Jitter(a, at, span)
		if j < 0 || j >= span || j%time.Millisecond != 0 || j != Jitter(a, at.In(time.FixedZone("x", 3600)), span) {
			t.Fatalf("jitter of %s is %s", at, j)
		}
		if j != Jitter(b, at, span) {
			differ++
		}
		sum += j
	}
	if mean := sum / 1000; differ < 990 || mean < span*4/10 || mean > span*6/10 {
		t.Errorf("%d of 1,000 instants differ between two schedules, the mean is %s", differ, mean)
	}
	if Jitter(a, at, 0) != 0 {
		t.Error("no span, but jitter")
	}
}

func BenchmarkNext(b *testing.B) {
	for _, cron := range []string{"* * * * *", "30 2 * * *", "0 0 29 2 *"} {
		tt, err := New(Spec{Cron: cron, Zone: "Europe/Berlin", Gap: GapShift, Overlap: OverlapFirst})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(cron, func(b *testing.B) {
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i := range b.N {
				tt.Next(at.Add(time.Duration(i%100_000) * time.Hour))
			}
		})
	}
}
