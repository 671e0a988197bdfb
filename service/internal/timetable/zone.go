package timetable

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"
)

// The zone database of the Go release that Orbit is built with. It is part of the program, so that a host's own database changes
// nothing: every replica of one version evaluates every zone alike.
//
//go:generate cp -f "$GOROOT/lib/time/zoneinfo.zip" zoneinfo.zip
//go:embed zoneinfo.zip
var zoneData []byte

var zoneFiles = sync.OnceValues(func() (map[string]*zip.File, error) {
	r, err := zip.NewReader(bytes.NewReader(zoneData), int64(len(zoneData)))
	if err != nil {
		return nil, err
	}
	files := make(map[string]*zip.File, len(r.File))
	for _, f := range r.File {
		if !f.FileInfo().IsDir() {
			files[f.Name] = f
		}
	}
	return files, nil
})

// zones holds each zone that was asked for: at most as many as the database has.
var zones sync.Map

// Zone gives an IANA time zone by its exact name, such as Europe/Berlin, or UTC.
func Zone(name string) (*time.Location, error) {
	c, err := clocksOf(name)
	if err != nil {
		return nil, err
	}
	return c.zone, nil
}

func clocksOf(name string) (*clocks, error) {
	if c, ok := zones.Load(name); ok {
		return c.(*clocks), nil
	}
	files, err := zoneFiles()
	if err != nil {
		return nil, err
	}
	f, ok := files[name]
	if !ok {
		return nil, fmt.Errorf("%q is no time zone of the IANA database; names are written as in Europe/Berlin, to the letter", name)
	}
	data, err := readAll(f)
	if err != nil {
		return nil, err
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, err
	}
	c, _ := zones.LoadOrStore(name, &clocks{zone: zone})
	return c.(*clocks), nil
}

func readAll(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// clocks are those of one zone.
type clocks struct {
	zone  *time.Location
	years sync.Map // year → []segment
}

// segment is a stretch of time with one offset: instants from start to before end, in seconds since 1970. It ends with the year at the
// latest, where the next may have the same offset.
type segment struct {
	start, end int64
	offset     int64 // of local time from UTC, seconds
}

func (c *clocks) offset(at int64) int64 {
	_, offset := time.Unix(at, 0).In(c.zone).Zone()
	return int64(offset)
}

func (c *clocks) segmentAt(at int64) segment {
	segments := c.segments(time.Unix(at, 0).UTC().Year())
	i := len(segments) - 1
	for segments[i].start > at {
		i--
	}
	return segments[i]
}

// segments gives those of one year, which are looked for once, hour by hour. Time.ZoneBounds is not asked: where a zone's rule goes on after
// its last recorded change it answers ends that are none (the last day of leap years) and starts that are none, where offsets are right.
func (c *clocks) segments(year int) []segment {
	if known, ok := c.years.Load(year); ok {
		return known.([]segment)
	}
	start := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	end := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	current := segment{start: start, end: end, offset: c.offset(start)}
	var found []segment
	for before := start; before < end-1; {
		at := min(before+3600, end-1)
		if c.offset(at) != current.offset {
			for before+1 < at {
				if middle := (before + at) / 2; c.offset(middle) == current.offset {
					before = middle
				} else {
					at = middle
				}
			}
			current.end = at
			found = append(found, current)
			current = segment{start: at, end: end, offset: c.offset(at)}
		}
		before = at
	}
	found = append(found, current)
	c.years.Store(year, found)
	return found
}

// day is the length of a day of wall time, and more than any two zones differ by.
const day = 24 * 60 * 60

// instantsOf gives the instants at which the clocks show a wall time, in their order: one, or none in a gap, or several in an overlap.
func (c *clocks) instantsOf(wall int64) []int64 {
	var found []int64
	for s := c.segmentAt(wall - day); s.start <= wall+day; s = c.segmentAt(s.end) {
		if at := wall - s.offset; at >= s.start && at < s.end {
			found = append(found, at)
		}
	}
	return found
}
