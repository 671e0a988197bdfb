package timetable

import (
	"fmt"
	"math/bits"
	"regexp"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// walls is a set of wall times, in seconds since 1970 as clocks at offset 0 show them.
type walls interface {
	// next gives the first wall time of the set from from on and before to.
	next(from, to int64) (int64, bool)
}

// fields is a cron expression as sets of bits.
type fields struct {
	second, minute, hour, dom, month, dow uint64
	// both: the day must be in dom and in dow, and not in either.
	both bool
}

var macros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// field is the shape of one field. The library takes more than it documents (an empty list item, *-5): this keeps what is stored
// readable by any cron.
var field = func() *regexp.Regexp {
	item := `(?:[*?]|(?:[0-9]{1,2}|[A-Za-z]{3})(?:-(?:[0-9]{1,2}|[A-Za-z]{3}))?)(?:/[0-9]{1,2})?`
	return regexp.MustCompile(`^` + item + `(?:,` + item + `)*$`)
}()

var grammar = cron.MustNewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

var fieldNames = []string{"second", "minute", "hour", "day of month", "month", "day of week"}

// parseCron reads five fields, six with the second first, or a macro. moving tells that the second, the minute or the hour begins with *.
//
// Which fields begin with * is read from the text, as Vixie cron does: the library forgets it of */2.
func parseCron(text string) (set *fields, moving bool, err error) {
	expression := text
	if strings.HasPrefix(text, "@") {
		m, ok := macros[text]
		if !ok {
			return nil, false, fmt.Errorf("%q is no macro: there are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every", text)
		}
		expression = m
	}
	parts := strings.Fields(expression)
	switch len(parts) {
	case 5:
		parts = append([]string{"0"}, parts...)
	case 6:
	default:
		return nil, false, fmt.Errorf("a cron expression has 5 fields (minute, hour, day of month, month, day of week), or 6 with the second first; this has %d", len(parts))
	}
	for i, p := range parts {
		if !field.MatchString(p) {
			return nil, false, fmt.Errorf("the %s %q is not made of *, numbers, names, ranges (1-5), lists (1,3) and steps (*/15)", fieldNames[i], p)
		}
	}
	parsed, err := grammar.Parse(strings.ToUpper(strings.Join(parts, " ")))
	if err != nil {
		return nil, false, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, false, fmt.Errorf("%q is not made of fields", text)
	}
	f := &fields{second: spec.Second, minute: spec.Minute, hour: spec.Hour, dom: spec.Dom, month: spec.Month, dow: spec.Dow}
	f.both = starred(parts[3]) || starred(parts[5])
	return f, starred(parts[0]) || starred(parts[1]) || starred(parts[2]), nil
}

func starred(field string) bool { return field[0] == '*' || field[0] == '?' }

// horizon bounds the search for the next wall time: the longest wait of any expression that fires at all is 40 years, from 29 February
// on one day of the week to the next over the year 2100.
const horizon = 50 * 366 * day

func (f *fields) next(from, to int64) (int64, bool) {
	to = min(to, from+horizon)
	for from < to {
		date := time.Unix(from, 0).UTC()
		year, month, dayOfMonth := date.Date()
		midnight := from - int64(date.Hour()*3600+date.Minute()*60+date.Second())
		if f.month>>month&1 == 0 {
			from = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Unix()
			continue
		}
		if f.onDay(dayOfMonth, date.Weekday()) {
			if clock, ok := f.clock(int(from - midnight)); ok {
				wall := midnight + int64(clock)
				return wall, wall < to
			}
		}
		from = midnight + day
	}
	return 0, false
}

func (f *fields) onDay(dayOfMonth int, weekday time.Weekday) bool {
	dom, dow := f.dom>>dayOfMonth&1 == 1, f.dow>>weekday&1 == 1
	if f.both {
		return dom && dow
	}
	return dom || dow
}

// clock gives the first time of day from a second of the day on.
func (f *fields) clock(from int) (int, bool) {
	hour, minute, second := from/3600, from/60%60, from%60
	h := above(f.hour, hour)
	if h > 23 {
		return 0, false
	}
	if h > hour {
		minute, second = 0, 0
	}
	m := above(f.minute, minute)
	if m > minute {
		second = 0
	}
	s := 60
	if m < 60 {
		if s = above(f.second, second); s > 59 {
			s, m = above(f.second, 0), above(f.minute, m+1)
		}
	}
	if m < 60 {
		return h*3600 + m*60 + s, true
	}
	if h = above(f.hour, h+1); h > 23 {
		return 0, false
	}
	return h*3600 + above(f.minute, 0)*60 + above(f.second, 0), true
}

// above gives the lowest bit of a set from n on; 64 if there is none. Bit 63, the library's mark, counts as none for the ranges used.
func above(set uint64, n int) int {
	return bits.TrailingZeros64(set >> n << n)
}
