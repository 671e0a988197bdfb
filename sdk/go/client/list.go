package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
)

// Each iterator below fetches page after page as it is consumed, repeats after unknown outcomes (see [WithRetryFor]), and
// ends after the last item, or with one error.

// TaskFilter narrows [Client.Tasks]; its members narrow together, and a zero one does not.
type TaskFilter struct {
	QueueID string
	State   api.TaskState
	Type    string
}

// Tasks gives the tasks of the queues that the credential covers, newest first, without payloads and results. Without a state in
// the filter each task that exists throughout is met exactly once.
func (c *Client) Tasks(ctx context.Context, f TaskFilter) iter.Seq2[api.TaskSummary, error] {
	params := api.ListTasksParams{QueueID: optString(f.QueueID), Type: optString(f.Type), Limit: pageLimit}
	if f.State != "" {
		params.State.SetTo(f.State)
	}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.TaskSummary, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListTasks(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// Attempts gives the execution generations of a task, the latest first, offers that were never started included.
func (c *Client) Attempts(ctx context.Context, taskID string) iter.Seq2[api.AttemptSummary, error] {
	params := api.ListTaskAttemptsParams{TaskID: taskID, Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.AttemptSummary, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListTaskAttempts(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// Evidence gives the results of an attempt that came too late or in contradiction, newest first, without their bodies.
func (c *Client) Evidence(ctx context.Context, attemptID string) iter.Seq2[api.EvidenceSummary, error] {
	params := api.ListAttemptEvidenceParams{AttemptID: attemptID, Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.EvidenceSummary, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListAttemptEvidence(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// Queues gives the queues that the credential covers, newest first.
func (c *Client) Queues(ctx context.Context) iter.Seq2[api.Queue, error] {
	params := api.ListQueuesParams{Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.Queue, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListQueues(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// Workers gives the incarnations of the namespace's workers, newest first, ended ones included.
func (c *Client) Workers(ctx context.Context) iter.Seq2[api.Worker, error] {
	params := api.ListWorkersParams{Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.Worker, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListWorkers(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// AuditFilter narrows [Client.AuditEvents]; its members narrow together, and a zero one does not.
type AuditFilter struct {
	ActorID  string
	Action   string // an operationId such as cancelTask
	TargetID string
}

// AuditEvents gives the acts of operators and administrators, and what was denied, newest first.
func (c *Client) AuditEvents(ctx context.Context, f AuditFilter) iter.Seq2[api.AuditEvent, error] {
	params := api.ListAuditEventsParams{
		ActorID: optString(f.ActorID), Action: optString(f.Action), TargetID: optString(f.TargetID), Limit: pageLimit,
	}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.AuditEvent, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListAuditEvents(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// Credentials gives all credentials of the namespace, newest first, whatever their state.
func (c *Client) Credentials(ctx context.Context) iter.Seq2[api.Credential, error] {
	params := api.ListCredentialsParams{Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.Credential, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListCredentials(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// Events gives the events of the namespace above the position after, in order, up to the last one there is now. Position "0" or
// "" is before the first. The position of an event is what to keep: everything up to it has been seen, and nothing will
// ever be inserted below it.
func (c *Client) Events(ctx context.Context, after string) iter.Seq2[api.Event, error] {
	return c.events(ctx, after, func() error { return errNoMore })
}

// FollowEvents is [Client.Events] without an end: at the last event it looks again each interval until ctx ends, which is its
// one error then.
func (c *Client) FollowEvents(ctx context.Context, after string, interval time.Duration) iter.Seq2[api.Event, error] {
	return c.events(ctx, after, func() error {
		select {
		case <-time.After(interval):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

var errNoMore = errors.New("no more events")

// events asks idle after an empty page: nil looks again, errNoMore ends without an error.
func (c *Client) events(ctx context.Context, after string, idle func() error) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		params := api.ListEventsParams{After: optString(after), Limit: pageLimit}
		for {
			page, err := Retry(ctx, func(ctx context.Context) (*api.EventPage, error) {
				return c.API.ListEvents(ctx, params)
			}, For(c.retryFor))
			if err != nil {
				yield(api.Event{}, err)
				return
			}
			for _, event := range page.Items {
				if !yield(event, nil) {
					return
				}
			}
			params.After.SetTo(page.NextAfter)
			if len(page.Items) > 0 {
				continue
			}
			if err := idle(); err != nil {
				if !errors.Is(err, errNoMore) {
					yield(api.Event{}, err)
				}
				return
			}
		}
	}
}

// pageLimit is the largest page the server gives.
var pageLimit = api.NewOptInt(500)

// pages walks a list to its end, which an absent cursor alone marks: a page may be short, or empty, before that.
func pages[T any](ctx context.Context, c *Client, fetch func(context.Context, api.OptString) ([]T, api.OptString, error)) iter.Seq2[T, error] {
	type page struct {
		items []T
		next  api.OptString
	}
	return func(yield func(T, error) bool) {
		var cursor api.OptString
		for {
			got, err := Retry(ctx, func(ctx context.Context) (p page, err error) {
				p.items, p.next, err = fetch(ctx, cursor)
				return p, err
			}, For(c.retryFor))
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range got.items {
				if !yield(item, nil) {
					return
				}
			}
			if !got.next.Set {
				return
			}
			cursor = got.next
		}
	}
}

// Schedules gives the schedules whose queues the credential covers, newest first, archived ones included.
func (c *Client) Schedules(ctx context.Context) iter.Seq2[api.Schedule, error] {
	params := api.ListSchedulesParams{Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.Schedule, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListSchedules(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// ScheduleVersions gives what a schedule was, newest first.
func (c *Client) ScheduleVersions(ctx context.Context, scheduleID string) iter.Seq2[api.ScheduleVersion, error] {
	params := api.ListScheduleVersionsParams{ScheduleID: scheduleID, Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.ScheduleVersion, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListScheduleVersions(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}

// Occurrences gives what became of a schedule's instants, the latest instant first.
func (c *Client) Occurrences(ctx context.Context, scheduleID string) iter.Seq2[api.Occurrence, error] {
	params := api.ListScheduleOccurrencesParams{ScheduleID: scheduleID, Limit: pageLimit}
	return pages(ctx, c, func(ctx context.Context, cursor api.OptString) ([]api.Occurrence, api.OptString, error) {
		params.Cursor = cursor
		page, err := c.API.ListScheduleOccurrences(ctx, params)
		if err != nil {
			return nil, api.OptString{}, err
		}
		return page.Items, page.NextCursor, nil
	})
}
