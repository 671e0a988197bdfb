package platform

import (
	"slices"
	"testing"

	"github.com/orbit-run/orbit"
)

// Every namespace gets its turn within a round, however many are always busy.
func TestTurnsReachEverybody(t *testing.T) {
	var all []orbit.ID
	for i := range 10 {
		all = append(all, orbit.ID{15: byte(i + 1)})
	}
	list := func(after orbit.ID, limit int32) ([]orbit.ID, error) {
		var page []orbit.ID
		for _, id := range all {
			if id.Compare(after) > 0 && len(page) < int(limit) {
				page = append(page, id)
			}
		}
		return page, nil
	}
	for _, limit := range []int32{1, 3, 4, 7, 10, 11} {
		var turn turn
		met := map[orbit.ID]int{}
		rounds := (len(all) + int(limit) - 1) / int(limit)
		for range rounds {
			page, err := turn.next(limit, list)
			if err != nil {
				t.Fatal(err)
			}
			if len(slices.Compact(slices.Clone(page))) != len(page) {
				t.Errorf("limit %d: one namespace twice in a pass: %v", limit, page)
			}
			for _, id := range page {
				met[id]++
			}
		}
		if len(met) != len(all) {
			t.Errorf("limit %d: %d of %d namespaces were met in %d passes", limit, len(met), len(all), rounds)
		}
	}
}
