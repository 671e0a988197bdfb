package pulse

import (
	"testing"
	"time"
)

func TestHistoryIsCompleteExceptForWhatRetentionMayHaveTaken(t *testing.T) {
	oldest := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	long, near, after := oldest.Add(-time.Hour), oldest.Add(time.Second), oldest.Add(time.Hour)
	none, some := int64(1), int64(100)
	for name, c := range map[string]struct {
		h                history
		version          int64
		created, updated time.Time
		whole            bool
	}{
		"complete":                              {history{3, 1, 3, &none, nil}, 3, long, long, true},
		"complete after a trim":                 {history{3, 1, 3, &some, &oldest}, 3, long, after, true},
		"first missing, nothing trimmed":        {history{2, 2, 3, &none, nil}, 3, long, after, false},
		"first missing, no head":                {history{2, 2, 3, nil, nil}, 3, long, after, false},
		"first trimmed":                         {history{2, 2, 3, &some, &oldest}, 3, long, after, true},
		"first missing, made after the trim":    {history{2, 2, 3, &some, &oldest}, 3, after, after, false},
		"first missing, made about the trim":    {history{2, 2, 3, &some, &oldest}, 3, near, after, true},
		"gap":                                   {history{2, 1, 3, &some, &oldest}, 3, long, after, false},
		"last missing":                          {history{2, 1, 2, &some, &oldest}, 3, long, long, false},
		"above the row":                         {history{4, 1, 4, &none, nil}, 3, long, long, false},
		"all trimmed":                           {history{0, 0, 0, &some, &oldest}, 3, long, long, true},
		"all trimmed of everything":             {history{0, 0, 0, &some, nil}, 3, long, after, true},
		"all missing, last after the trim":      {history{0, 0, 0, &some, &oldest}, 3, long, after, false},
		"all missing, nothing trimmed":          {history{0, 0, 0, &none, nil}, 1, long, long, false},
		"a gate that was never moved":           {history{0, 0, 0, &none, nil}, 0, long, long, true},
		"an event of a gate that has no row":    {history{1, 1, 1, &none, nil}, 0, long, long, false},
		"as many as versions, but not the same": {history{3, 1, 2, &none, nil}, 3, long, long, false},
	} {
		if got := c.h.judge("x", c.version, c.created, c.updated); (len(got) == 0) != c.whole {
			t.Errorf("%s: %v, want whole: %t", name, got, c.whole)
		}
	}
}

func TestPreviousPlaceComesJustBefore(t *testing.T) {
	for id, want := range map[byte][2]byte{0: {0, 0xff}, 1: {1, 0}, 9: {1, 8}} {
		p := place{}
		p.id[14], p.id[15] = 1, id
		got := p.previous()
		if got.id[14] != want[0] || got.id[15] != want[1] || got.id.Compare(p.id) >= 0 {
			t.Errorf("before %v comes %v", p.id, got.id)
		}
	}
}
