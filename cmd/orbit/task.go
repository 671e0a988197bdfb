package main

import (
	"context"
	"fmt"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

type taskCommand struct {
	Submit  taskSubmitCommand  `cmd:"" help:"Have a task accepted."`
	Get     taskGetCommand     `cmd:"" help:"Show a task with its payload, result and attempts."`
	List    taskListCommand    `cmd:"" help:"List tasks, newest first."`
	Cancel  taskCancelCommand  `cmd:"" help:"Cancel a task; a running one is asked to stop."`
	Retry   taskRetryCommand   `cmd:"" help:"Give a failed task a new budget of attempts."`
	Resolve taskResolveCommand `cmd:"" help:"Decide about a task in review."`
}

type taskSubmitCommand struct {
	remoteSettings
	idempotent
	Queue          string        `required:"" short:"q" placeholder:"NAME" help:"Queue, by name or id."`
	Type           string        `required:"" short:"t" placeholder:"TYPE" help:"Type, which names the handler."`
	Payload        jsonArgument  `short:"p" placeholder:"JSON" help:"Payload: JSON, @FILE, or - for standard input."`
	PayloadVersion uint32        `help:"Version of the payload's shape."`
	Priority       int           `help:"1 goes first, 9 last."`
	RunAt          time.Time     `xor:"when" placeholder:"INSTANT" help:"Not before this instant, RFC 3339."`
	Delay          time.Duration `xor:"when" help:"Not before this long from now."`
	DeadlineAt     time.Time     `placeholder:"INSTANT" help:"The task fails if it has not ended by then, RFC 3339."`
	MaxAttempts    int           `help:"Attempts at most, the first included; the queue's where it is missing."`
}

func (c *taskSubmitCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	payload, err := c.Payload.read()
	if err != nil {
		return err
	}
	submission := client.Submission{
		Type: c.Type, Payload: payload, PayloadVersion: c.PayloadVersion, Priority: c.Priority,
		RunAt: c.RunAt, Delay: c.Delay, DeadlineAt: c.DeadlineAt, MaxAttempts: c.MaxAttempts,
	}
	if isID(c.Queue) {
		submission.QueueID = c.Queue
	} else {
		submission.Queue = c.Queue
	}
	receipt, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (client.Receipt, error) {
		return remote.Submit(ctx, key.Value, submission)
	})
	if err != nil {
		return err
	}
	return p.one(receiptView{receipt.TaskID, receipt.QueueID, receipt.Type, receipt.AcceptedAt, receipt.RunAt, receipt.Replayed}, [][]string{
		{"task", receipt.TaskID},
		{"queue", receipt.QueueID},
		{"type", receipt.Type},
		{"accepted", instant(receipt.AcceptedAt)},
		{"run at", instant(receipt.RunAt)},
		{"replayed", yes(receipt.Replayed)},
	})
}

type receiptView struct {
	TaskID     string    `json:"task_id"`
	QueueID    string    `json:"queue_id"`
	Type       string    `json:"type"`
	AcceptedAt time.Time `json:"accepted_at"`
	RunAt      time.Time `json:"run_at"`
	Replayed   bool      `json:"replayed"`
}

type taskGetCommand struct {
	remoteSettings
	Task string `arg:"" help:"Id of the task."`
}

func (c *taskGetCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	task, err := read(ctx, func(ctx context.Context) (*api.TaskHeaders, error) {
		return remote.API.GetTask(ctx, api.GetTaskParams{TaskID: c.Task})
	})
	if err != nil {
		return err
	}
	attempts, err := collect(remote.Attempts(ctx, c.Task), 20)
	if err != nil {
		return err
	}
	t := task.Response
	if p.format == "json" {
		return p.json(struct {
			Task     *api.Task            `json:"task"`
			Attempts []api.AttemptSummary `json:"attempts"`
		}{&t, attempts})
	}
	if err := p.one(nil, taskRows(&t)); err != nil || len(attempts) == 0 {
		return err
	}
	fmt.Fprintln(p.out)
	rows := make([][]string, len(attempts))
	for i, a := range attempts {
		rows[i] = attemptRow(a)
	}
	return p.list(nil, []string{"ATTEMPT", "GENERATION", "STATE", "OFFERED", "STARTED", "ENDED", "CODE"}, rows)
}

// origin is what made a task that nobody submitted.
func origin(o api.OptTaskOrigin) string {
	switch {
	case !o.Set:
		return ""
	case o.Value.ScheduleID.Set:
		return o.Value.Kind + " " + o.Value.ScheduleID.Value + " of " + instant(o.Value.FireAt.Value)
	}
	return o.Value.Kind + ", occurrence " + o.Value.ID
}

func taskRows(t *api.Task) [][]string {
	rows := [][]string{
		{"task", t.ID},
		{"queue", t.QueueID},
		{"type", t.Type},
		{"state", string(t.State)},
		{"waiting", waiting(t.Waiting)},
		{"cancel requested", yes(t.CancelRequested)},
		{"priority", formatInt(t.Priority)},
		{"attempts", fmt.Sprintf("%d of %d", t.AttemptsUsed, t.MaxAttempts)},
		{"run at", instant(t.RunAt)},
		{"deadline", instant(t.DeadlineAt.Value)},
		{"origin", origin(t.Origin)},
		{"created", instant(t.CreatedAt)},
		{"finished", instant(t.FinishedAt.Value)},
		{"failure", failure(t.Failure)},
		{"etag", t.Etag},
		{"payload", string(t.Payload)},
	}
	if t.State == api.TaskStateSucceeded {
		rows = append(rows, []string{"result", string(t.Result)})
	}
	return rows
}

func attemptRow(a api.AttemptSummary) []string {
	return []string{a.ID, formatInt(a.Generation), string(a.State), instant(a.OfferedAt), instant(a.StartedAt.Value), instant(a.EndedAt.Value), failure(a.Failure)}
}

type taskListCommand struct {
	remoteSettings
	Queue string `short:"q" placeholder:"NAME" help:"Only of this queue, by name or id."`
	State string `enum:",queued,offered,running,review,succeeded,failed,cancelled" default:"" help:"Only in this state: queued, offered, running, review, succeeded, failed or cancelled."`
	Type  string `short:"t" placeholder:"TYPE" help:"Only of this type."`
	Limit int    `short:"n" default:"50" help:"At most so many (${default}); 0 is all."`
}

func (c *taskListCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	filter := client.TaskFilter{State: api.TaskState(c.State), Type: c.Type}
	if c.Queue != "" {
		if filter.QueueID, err = queueID(ctx, remote, c.Queue); err != nil {
			return err
		}
	}
	tasks, err := collect(remote.Tasks(ctx, filter), c.Limit)
	if err != nil {
		return err
	}
	rows := make([][]string, len(tasks))
	for i, t := range tasks {
		state := string(t.State)
		if why := waiting(t.Waiting); why != "" {
			state += " (" + why + ")"
		}
		rows[i] = []string{t.ID, t.Type, state, formatInt(t.AttemptsUsed), instant(t.CreatedAt), failure(t.Failure)}
	}
	return p.list(itemsView[api.TaskSummary]{tasks}, []string{"TASK", "TYPE", "STATE", "ATTEMPTS", "CREATED", "FAILURE"}, rows)
}

type itemsView[T any] struct {
	Items []T `json:"items"`
}

// etagged is for commands that change a task only as it was seen.
type etagged struct {
	IfMatch string `placeholder:"ETAG" help:"Only if the task is still as this etag says; see task get."`
}

func (e etagged) header() api.OptString {
	if e.IfMatch == "" {
		return api.OptString{}
	}
	return api.NewOptString(e.IfMatch)
}

type taskCancelCommand struct {
	remoteSettings
	idempotent
	etagged
	Task   string `arg:"" help:"Id of the task."`
	Reason string `short:"r" help:"Why; kept in the audit."`
}

func (c *taskCancelCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	request := api.NewOptCancelTaskRequest(api.CancelTaskRequest{Reason: optional(c.Reason)})
	task, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.TaskSummaryHeaders, error) {
		return remote.API.CancelTask(ctx, request, api.CancelTaskParams{TaskID: c.Task, IdempotencyKey: key, IfMatch: c.header()})
	})
	if err != nil {
		return err
	}
	return p.changedTask(&task.Response)
}

type taskRetryCommand struct {
	remoteSettings
	idempotent
	etagged
	Task        string    `arg:"" help:"Id of the task."`
	Reason      string    `short:"r" help:"Why; kept in the audit."`
	RunAt       time.Time `placeholder:"INSTANT" help:"Not before this instant, RFC 3339."`
	MaxAttempts int       `help:"Budget of the retry, its first attempt included."`
}

func (c *taskRetryCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	request := api.RetryTaskRequest{Reason: optional(c.Reason)}
	if !c.RunAt.IsZero() {
		request.RunAt.SetTo(c.RunAt)
	}
	if c.MaxAttempts != 0 {
		request.MaxAttempts.SetTo(c.MaxAttempts)
	}
	task, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.TaskSummaryHeaders, error) {
		return remote.API.RetryTask(ctx, api.NewOptRetryTaskRequest(request), api.RetryTaskParams{TaskID: c.Task, IdempotencyKey: key, IfMatch: c.header()})
	})
	if err != nil {
		return err
	}
	return p.changedTask(&task.Response)
}

// taskResolveCommand decides as a person who has looked: --if-match is the etag of what was seen.
type taskResolveCommand struct {
	remoteSettings
	idempotent
	Task       string `arg:"" help:"Id of the task."`
	Resolution string `arg:"" enum:"accept_evidence,retry,fail,cancel" help:"accept_evidence (what a late worker reported counts), retry, fail or cancel."`
	IfMatch    string `required:"" placeholder:"ETAG" help:"The etag of the task as you saw it; see task get."`
	Reason     string `required:"" short:"r" help:"Why; kept in the audit."`
	Evidence   string `placeholder:"ID" help:"Which evidence, for accept_evidence."`
}

func (c *taskResolveCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	request := &api.ResolveTaskRequest{Resolution: api.Resolution(c.Resolution), Reason: c.Reason, EvidenceID: optional(c.Evidence)}
	task, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.TaskSummaryHeaders, error) {
		return remote.API.ResolveTask(ctx, request, api.ResolveTaskParams{TaskID: c.Task, IdempotencyKey: key, IfMatch: api.NewOptString(c.IfMatch)})
	})
	if err != nil {
		return err
	}
	return p.changedTask(&task.Response)
}

func (p *printer) changedTask(t *api.TaskSummary) error {
	return p.one(t, [][]string{
		{"task", t.ID},
		{"state", string(t.State)},
		{"waiting", waiting(t.Waiting)},
		{"cancel requested", yes(t.CancelRequested)},
	})
}

func waiting(w api.OptWaiting) string {
	if !w.Set {
		return ""
	}
	text := string(w.Value.Kind)
	if until, ok := w.Value.Until.Get(); ok {
		text += " until " + instant(until)
	}
	if blocker, ok := w.Value.Blocker.Get(); ok {
		text += " by " + blocker.Kind + " " + blocker.ID.Value
	}
	return text
}

func failure(f api.OptFailure) string {
	if !f.Set {
		return ""
	}
	if f.Value.Message == "" {
		return f.Value.Code
	}
	return f.Value.Code + ": " + f.Value.Message
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func optional(text string) api.OptString {
	if text == "" {
		return api.OptString{}
	}
	return api.NewOptString(text)
}
