package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
)

const (
	mismatchesShown = 10
	demoReaders     = 16 // results fetched at once
)

// key names the task of a path in this run.
func (d *demo) key(path string) string {
	sum := sha256.Sum256([]byte(path))
	return "demo-" + d.state.Run + "-" + hex.EncodeToString(sum[:16])
}

// demoSummary is what the demo came to. Times are the database's, as the API gives them.
type demoSummary struct {
	Tasks      int `json:"tasks"`
	Agreed     int `json:"agreed"`     // results equal to the direct computation
	Unreadable int `json:"unreadable"` // of those, files that neither could read
	Skipped    int `json:"skipped"`    // no regular files, or names that are not UTF-8
	Attempts   int `json:"attempts"`   // offers to a worker
	Started    int `json:"started"`
	Retries    int `json:"retries"` // starts of a task beyond its first
	Lost       int `json:"lost"`    // attempts whose worker was lost after the start
	Unstarted  int `json:"unstarted"`
	Evidence   int `json:"evidence"` // results that came too late or in contradiction

	Seconds        float64 `json:"seconds"` // from the first submission to the last end
	TasksPerSecond float64 `json:"tasks_per_second"`
	WaitP50Ms      float64 `json:"submission_to_start_p50_ms"` // the backlog is part of it
	WaitP99Ms      float64 `json:"submission_to_start_p99_ms"`
	IdleP50Ms      float64 `json:"idle_submission_to_start_p50_ms"` // of tasks submitted one by one to idle workers
	IdleP99Ms      float64 `json:"idle_submission_to_start_p99_ms"`
	Broken         int     `json:"broken_invariants"`

	AtWorkerKill int `json:"running_at_worker_kill"` // in that worker
	AtServerKill int `json:"running_at_server_kill"` // in all workers, just before
}

func (s *demoSummary) rows() [][]string {
	verified := "every invariant holds"
	if s.Broken > 0 {
		verified = fmt.Sprintf("%d invariants are broken", s.Broken)
	}
	return [][]string{
		{"tasks", formatInt(s.Tasks)},
		{"results as computed directly", fmt.Sprintf("%d of %d", s.Agreed, s.Tasks)},
		{"of these, unreadable files", nonZero(s.Unreadable)},
		{"files left out (links, devices)", nonZero(s.Skipped)},
		{"attempts", fmt.Sprintf("%d, of which %d started", s.Attempts, s.Started)},
		{"running at the kills", inFlight{s.AtWorkerKill, s.AtServerKill}.text()},
		{"retries", formatInt(s.Retries)},
		{"lost with their worker", formatInt(s.Lost)},
		{"offers not started", formatInt(s.Unstarted)},
		{"evidence", formatInt(s.Evidence)},
		{"time", fmt.Sprintf("%.1f s, breakages included", s.Seconds)},
		{"tasks per second", fmt.Sprintf("%.0f", s.TasksPerSecond)},
		{"submission to start, with the backlog", fmt.Sprintf("p50 %.0f ms, p99 %.0f ms", s.WaitP50Ms, s.WaitP99Ms)},
		{fmt.Sprintf("the same for %d more, one by one", demoProbes), fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", s.IdleP50Ms, s.IdleP99Ms)},
		{"verify", verified},
	}
}

func nonZero(n int) string {
	if n == 0 {
		return ""
	}
	return formatInt(n)
}

// verdict is an error unless everything agreed.
func (s *demoSummary) verdict() error {
	switch {
	case s.Agreed < s.Tasks:
		return fmt.Errorf("%d results are not as computed directly", s.Tasks-s.Agreed)
	case s.Broken > 0:
		return fmt.Errorf("%d invariants are broken", s.Broken)
	}
	return nil
}

// taskStory is one task as the API tells it.
type taskStory struct {
	task     *api.Task
	attempts []api.AttemptSummary
	evidence int
	mismatch string // empty if the result is as computed directly
	closed   bool   // neither could read the file
}

// compare fetches every result and computes each anew.
func (d *demo) compare(ctx context.Context) (*demoSummary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stories := make([]taskStory, len(d.tasks))
	next := make(chan int)
	finished := make(chan struct{}, len(d.tasks))
	var readers sync.WaitGroup
	for range demoReaders {
		readers.Go(func() {
			for i := range next {
				var err error
				if stories[i], err = d.story(ctx, i); err != nil {
					cancel(err)
				}
				finished <- struct{}{}
			}
		})
	}
	go func() {
		defer close(next)
		for i := range d.tasks {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	bar := newProgress(d.p.err, "compared", len(d.tasks))
	for n := range d.tasks {
		select {
		case <-finished:
			bar.set(n + 1)
		case <-ctx.Done():
		}
	}
	readers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	summary := d.summarise(stories)
	return summary, d.addProbes(ctx, summary)
}

// addProbes adds the time to start of the tasks that were submitted one by one.
func (d *demo) addProbes(ctx context.Context, s *demoSummary) error {
	var waits []time.Duration
	for _, id := range d.probes {
		task, err := d.task(ctx, id)
		if err != nil {
			return err
		}
		attempts, err := collect(d.remote.Attempts(ctx, id), 0)
		if err != nil {
			return err
		}
		if wait, ok := new(demoSummary).count(taskStory{task: task, attempts: attempts}); ok {
			waits = append(waits, wait)
		}
	}
	slices.Sort(waits)
	s.IdleP50Ms, s.IdleP99Ms = quantile(waits, 0.50), quantile(waits, 0.99)
	return nil
}

func (d *demo) task(ctx context.Context, id string) (*api.Task, error) {
	task, err := read(ctx, func(ctx context.Context) (*api.TaskHeaders, error) {
		return d.remote.API.GetTask(ctx, api.GetTaskParams{TaskID: id})
	})
	if err != nil {
		return nil, err
	}
	return &task.Response, nil
}

func (d *demo) story(ctx context.Context, i int) (s taskStory, err error) {
	if s.task, err = d.task(ctx, d.tasks[i]); err != nil {
		return s, err
	}
	if s.attempts, err = collect(d.remote.Attempts(ctx, d.tasks[i]), 0); err != nil {
		return s, err
	}
	for _, a := range s.attempts {
		if a.State == api.AttemptStateSucceeded && len(s.attempts) == 1 {
			break // one attempt, taken as it came: nothing was late
		}
		evidence, err := collect(d.remote.Evidence(ctx, a.ID), 0)
		if err != nil {
			return s, err
		}
		s.evidence += len(evidence)
	}
	s.mismatch, s.closed = differs(s.task, filepath.Join(d.state.Dir, filepath.FromSlash(d.files.paths[i])))
	return s, nil
}

// differs says how a task's end differs from the direct computation, and whether the file cannot be read.
func differs(task *api.Task, name string) (difference string, closed bool) {
	want, err := digestWhole(name)
	if err != nil {
		if task.State == api.TaskStateFailed && task.Failure.Value.Code == codeUnreadable {
			return "", true
		}
		return fmt.Sprintf("%s, and reading it here: %v", task.State, err), false
	}
	if task.State != api.TaskStateSucceeded {
		return fmt.Sprintf("%s: %s %s", task.State, task.Failure.Value.Code, task.Failure.Value.Message), false
	}
	var got fileDigest
	if err := json.Unmarshal(task.Result, &got); err != nil {
		return fmt.Sprintf("result %s: %v", task.Result, err), false
	}
	if got != want {
		return fmt.Sprintf("%+v, computed here %+v", got, want), false
	}
	return "", false
}

func (d *demo) summarise(stories []taskStory) *demoSummary {
	s := &demoSummary{Tasks: len(stories), Skipped: d.files.irregular + d.files.unnamed + d.files.closed, AtWorkerKill: d.hit.worker, AtServerKill: d.hit.server}
	var waits []time.Duration
	var first, last time.Time
	shown := 0
	for i, story := range stories {
		if story.mismatch == "" {
			s.Agreed++
		} else if shown++; shown <= mismatchesShown {
			d.p.hint("%s: %s", d.files.paths[i], story.mismatch)
		}
		if story.closed {
			s.Unreadable++
		}
		s.Evidence += story.evidence
		if wait, ok := s.count(story); ok {
			waits = append(waits, wait)
		}
		if created := story.task.CreatedAt; first.IsZero() || created.Before(first) {
			first = created
		}
		if ended, ok := story.task.FinishedAt.Get(); ok && ended.After(last) {
			last = ended
		}
	}
	if s.Seconds = last.Sub(first).Seconds(); s.Seconds > 0 {
		s.TasksPerSecond = float64(s.Tasks) / s.Seconds
	}
	slices.Sort(waits)
	s.WaitP50Ms, s.WaitP99Ms = quantile(waits, 0.50), quantile(waits, 0.99)
	return s
}

// count adds a task's attempts, and gives the time from its submission to its first start.
func (s *demoSummary) count(story taskStory) (wait time.Duration, ok bool) {
	started := 0
	for _, a := range story.attempts {
		at, has := a.StartedAt.Get()
		switch {
		case !has:
			s.Unstarted++
		case a.State == api.AttemptStateLost:
			s.Lost++
		}
		if has {
			started++
			wait, ok = at.Sub(story.task.CreatedAt), true // the latest is first: the last one seen was the first to start
		}
	}
	s.Attempts += len(story.attempts)
	s.Started += started
	s.Retries += max(started-1, 0)
	return wait, ok
}

// quantile is the least of sorted waits that at least the share q of them do not exceed, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := max(int(math.Ceil(q*float64(len(sorted))))-1, 0)
	return float64(sorted[at]) / float64(time.Millisecond)
}
