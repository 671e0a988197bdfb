package main

import (
	"context"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

type queueCommand struct {
	Create queueCreateCommand `cmd:"" help:"Make a queue."`
	Get    queueGetCommand    `cmd:"" help:"Show a queue and its policy."`
	List   queueListCommand   `cmd:"" help:"List queues."`
	Update queueUpdateCommand `cmd:"" help:"Change a queue's policy; what is not given stays."`
	Pause  queuePauseCommand  `cmd:"" help:"Stop offering and starting a queue's tasks."`
	Resume queueResumeCommand `cmd:"" help:"Go on with a paused queue."`
	Depth  queueDepthCommand  `cmd:"" help:"Count a queue's open tasks by state."`
}

// queuePolicy holds what create and update share. What is not given takes the server's default, or stays.
type queuePolicy struct {
	Lease          time.Duration `help:"Lease of a started attempt."`
	OfferTimeout   time.Duration `help:"An offer not started by then is taken back."`
	MaxAttempts    int           `help:"Default budget of attempts, the first included."`
	BackoffInitial time.Duration `help:"Delay before the second attempt; doubles for each further one."`
	BackoffMax     time.Duration `help:"Upper bound of the delay."`
	Retention      time.Duration `help:"How long an ended task is kept."`
	UnknownOutcome string        `enum:",review,retry" default:"" help:"What becomes of a task whose worker was lost: review (a person decides) or retry."`
	OneStep        *bool         `negatable:"" help:"Whether a claim may start tasks at once, which saves workers a call; only with --unknown-outcome=retry."`
}

// fill sets what was given in a request's optional members.
func (q queuePolicy) fill(lease, offer, initial, maximum, retention *api.OptInt64, attempts *api.OptInt, oneStep *api.OptBool) {
	for member, value := range map[*api.OptInt64]time.Duration{
		lease: q.Lease, offer: q.OfferTimeout, initial: q.BackoffInitial, maximum: q.BackoffMax, retention: q.Retention,
	} {
		if value != 0 {
			member.SetTo(value.Milliseconds())
		}
	}
	if q.MaxAttempts != 0 {
		attempts.SetTo(q.MaxAttempts)
	}
	if q.OneStep != nil {
		oneStep.SetTo(*q.OneStep)
	}
}

type queueCreateCommand struct {
	remoteSettings
	idempotent
	queuePolicy
	Name string `arg:"" help:"Name, unique in the namespace."`
}

func (c *queueCreateCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	request := &api.CreateQueueRequest{Name: c.Name}
	c.fill(&request.LeaseMs, &request.OfferTimeoutMs, &request.BackoffInitialMs, &request.BackoffMaxMs, &request.RetentionMs, &request.MaxAttempts, &request.OneStep)
	if c.UnknownOutcome != "" {
		request.UnknownOutcome.SetTo(api.CreateQueueRequestUnknownOutcome(c.UnknownOutcome))
	}
	queue, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.QueueHeaders, error) {
		return remote.API.CreateQueue(ctx, request, api.CreateQueueParams{IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.queue(&queue.Response)
}

// oneQueue is for commands about one queue.
type oneQueue struct {
	remoteSettings
	Queue string `arg:"" help:"Name or id of the queue."`
}

func (c *oneQueue) find(ctx context.Context) (*client.Client, string, error) {
	remote, err := c.client()
	if err != nil {
		return nil, "", err
	}
	id, err := queueID(ctx, remote, c.Queue)
	return remote, id, err
}

type queueGetCommand struct{ oneQueue }

func (c *queueGetCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	queue, err := read(ctx, func(ctx context.Context) (*api.GetQueueOKHeaders, error) {
		return remote.API.GetQueue(ctx, api.GetQueueParams{QueueID: id})
	})
	if err != nil {
		return err
	}
	return p.queue(&queue.Response)
}

type queueListCommand struct {
	remoteSettings
	Limit int `short:"n" default:"0" help:"At most so many; 0 is all."`
}

func (c *queueListCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	queues, err := collect(remote.Queues(ctx), c.Limit)
	if err != nil {
		return err
	}
	rows := make([][]string, len(queues))
	for i, q := range queues {
		rows[i] = []string{q.ID, q.Name, yes(q.Paused), milliseconds(q.LeaseMs), formatInt(q.MaxAttempts), string(q.UnknownOutcome), yes(q.OneStep), instant(q.CreatedAt)}
	}
	return p.list(itemsView[api.Queue]{queues}, []string{"QUEUE", "NAME", "PAUSED", "LEASE", "ATTEMPTS", "UNKNOWN", "ONE STEP", "CREATED"}, rows)
}

type queueUpdateCommand struct {
	oneQueue
	queuePolicy
	Revision int64 `help:"Only if the queue's revision is still this one; otherwise the one it has now."`
}

func (c *queueUpdateCommand) Run(ctx commandContext, p *printer) error {
	if c.queuePolicy == (queuePolicy{}) {
		return usagef("nothing to change: give at least one setting of the queue")
	}
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	etag, err := c.etag(ctx, remote, id)
	if err != nil {
		return err
	}
	request := &api.UpdateQueueRequest{}
	c.fill(&request.LeaseMs, &request.OfferTimeoutMs, &request.BackoffInitialMs, &request.BackoffMaxMs, &request.RetentionMs, &request.MaxAttempts, &request.OneStep)
	if c.UnknownOutcome != "" {
		request.UnknownOutcome.SetTo(api.UnknownOutcome(c.UnknownOutcome))
	}
	// Not repeated: after an unknown outcome the same If-Match would answer whether the change was made, as a refusal.
	queue, err := remote.API.UpdateQueue(ctx, request, api.UpdateQueueParams{QueueID: id, IfMatch: api.NewOptString(etag)})
	if err != nil {
		return err
	}
	return p.queue(&queue.Response)
}

func (c *queueUpdateCommand) etag(ctx context.Context, remote *client.Client, id string) (string, error) {
	if c.Revision != 0 {
		return `"` + formatInt(c.Revision) + `"`, nil
	}
	now, err := read(ctx, func(ctx context.Context) (*api.GetQueueOKHeaders, error) {
		return remote.API.GetQueue(ctx, api.GetQueueParams{QueueID: id})
	})
	if err != nil {
		return "", err
	}
	return now.ETag, nil
}

type queuePauseCommand struct {
	oneQueue
	idempotent
	Reason string `required:"" short:"r" help:"Why; shown with the queue and kept in the audit."`
}

func (c *queuePauseCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	gate, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.QueueGateHeaders, error) {
		return remote.API.PauseQueue(ctx, &api.PauseQueueRequest{Reason: c.Reason}, api.PauseQueueParams{QueueID: id, IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.gate(&gate.Response)
}

type queueResumeCommand struct {
	oneQueue
	idempotent
	Reason string `short:"r" help:"Why; kept in the audit."`
}

func (c *queueResumeCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	request := api.NewOptResumeQueueRequest(api.ResumeQueueRequest{Reason: optional(c.Reason)})
	gate, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.QueueGateHeaders, error) {
		return remote.API.ResumeQueue(ctx, request, api.ResumeQueueParams{QueueID: id, IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.gate(&gate.Response)
}

type queueDepthCommand struct{ oneQueue }

func (c *queueDepthCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	depth, err := read(ctx, func(ctx context.Context) (*api.QueueDepth, error) {
		return remote.API.GetQueueDepth(ctx, api.GetQueueDepthParams{QueueID: id})
	})
	if err != nil {
		return err
	}
	rows := [][]string{
		{"ready", count(depth.Ready)},
		{"scheduled", count(depth.Scheduled)},
		{"blocked", count(depth.Blocked)},
		{"offered", count(depth.Offered)},
		{"running", count(depth.Running)},
		{"review", count(depth.Review)},
	}
	if age, ok := depth.OldestReadyAgeMs.Get(); ok {
		rows = append(rows, []string{"oldest ready", milliseconds(age)})
	}
	return p.one(depth, rows)
}

func count(c api.BoundedCount) string {
	if c.Capped {
		return formatInt(c.Count) + " or more"
	}
	return formatInt(c.Count)
}

func milliseconds(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func (p *printer) queue(q *api.Queue) error {
	return p.one(q, [][]string{
		{"queue", q.ID},
		{"name", q.Name},
		{"paused", yes(q.Paused)},
		{"lease", milliseconds(q.LeaseMs)},
		{"offer time-out", milliseconds(q.OfferTimeoutMs)},
		{"attempts", formatInt(q.MaxAttempts)},
		{"backoff", milliseconds(q.BackoffInitialMs) + " to " + milliseconds(q.BackoffMaxMs)},
		{"retention", milliseconds(q.RetentionMs)},
		{"unknown outcome", string(q.UnknownOutcome)},
		{"one step", yes(q.OneStep)},
		{"revision", formatInt(q.Revision)},
		{"created", instant(q.CreatedAt)},
		{"updated", instant(q.UpdatedAt)},
	})
}

func (p *printer) gate(g *api.QueueGate) error {
	return p.one(g, [][]string{
		{"state", string(g.State)},
		{"reason", g.Reason.Value},
		{"version", formatInt(g.ControlVersion)},
		{"updated", instant(g.UpdatedAt)},
	})
}
