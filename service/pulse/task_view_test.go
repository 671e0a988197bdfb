package pulse

import (
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/pulsedb"
)

func TestATaskIsShownInItsOnePlace(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	id := orbit.NewID(now)
	kind, gate := "gate", "queue:x"
	ready := func(r *pulsedb.ViewTasksRow) { r.ReadyID = id.Null() }
	scheduled := func(r *pulsedb.ViewTasksRow) { r.ScheduledAt = &now }
	blocked := func(r *pulsedb.ViewTasksRow) { r.BlockerKind, r.BlockerID = &kind, &gate }
	attempt := func(s orbit.AttemptState) func(r *pulsedb.ViewTasksRow) {
		return func(r *pulsedb.ViewTasksRow) { r.AttemptID, r.AttemptState = id.Null(), s }
	}
	for name, c := range map[string]struct {
		row     orbit.TaskState
		in      []func(r *pulsedb.ViewTasksRow)
		state   api.TaskState // empty for a defect
		waiting api.WaitingKind
	}{
		"ready":               {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){ready}, "queued", "ready"},
		"scheduled":           {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){scheduled}, "queued", "scheduled"},
		"blocked":             {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){blocked}, "queued", "blocked"},
		"offered":             {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){attempt(orbit.AttemptOffered)}, "offered", ""},
		"running":             {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){attempt(orbit.AttemptRunning)}, "running", ""},
		"review":              {orbit.TaskReview, nil, "review", ""},
		"failed":              {orbit.TaskFailed, nil, "failed", ""},
		"nowhere":             {orbit.TaskOpen, nil, "", ""},
		"only an ended one":   {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){attempt(orbit.AttemptLost)}, "", ""},
		"ready and scheduled": {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){ready, scheduled}, "", ""},
		"ready and running":   {orbit.TaskOpen, []func(*pulsedb.ViewTasksRow){ready, attempt(orbit.AttemptRunning)}, "", ""},
	} {
		r := pulsedb.ViewTasksRow{State: c.row}
		for _, set := range c.in {
			set(&r)
		}
		got, err := taskSummary(r)
		if (err != nil) != (c.state == "") || got.State != c.state || got.Waiting.Value.Kind != c.waiting {
			t.Errorf("%s: %q waiting %q, %v; want %q waiting %q", name, got.State, got.Waiting.Value.Kind, err, c.state, c.waiting)
		}
	}
}

func TestATaskIsAsNewAsItsLiveAttempt(t *testing.T) {
	created := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	offered, started, asked := created.Add(time.Second), created.Add(2*time.Second), created.Add(3*time.Second)
	version := int64(3)
	r := pulsedb.ViewTasksRow{State: orbit.TaskOpen, Revision: 4, Generation: 6, UpdatedAt: created, AttemptID: orbit.NewID(created).Null(),
		AttemptState: orbit.AttemptRunning, AttemptVersion: &version, OfferedAt: &offered, StartedAt: &started, CancelRequestedAt: &asked}
	got, err := taskSummary(r)
	if err != nil || !got.UpdatedAt.Equal(asked) || got.Generation != 7 || !got.CancelRequested || got.Etag != `"4-6-3"` {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestIfMatchIsOneStrongTag(t *testing.T) {
	for header, want := range map[string]match{`"1"`: `"1"`, `"4-6-3"`: `"4-6-3"`, `W/"1"`: "", `*`: "", `1`: "", `""`: "", `"`: "", `"1", "2"`: "", `"1" `: "", ``: ""} {
		got, err := readMatch(api.NewOptString(header), false)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("If-Match: %s is read as %q, %v", header, got, err)
		}
	}
	if m, err := readMatch(api.OptString{}, false); err != nil || m.check(`"1"`) != nil {
		t.Errorf("an absent If-Match that is not required gives %q, %v", m, err)
	}
	if _, err := readMatch(api.OptString{}, true); err == nil {
		t.Error("an absent If-Match that is required passes")
	}
}
