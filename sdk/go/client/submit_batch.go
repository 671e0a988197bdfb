package client

import (
	"context"
	"fmt"

	"github.com/orbit-run/orbit/sdk/go/api"
)

// Item is one task of a batch with its own idempotency key.
type Item struct {
	Key string
	Submission
}

// Result is what became of one item: a receipt, or Err.
type Result struct {
	Receipt Receipt
	Err     error // nil exactly if there is a receipt; a *Problem where the server refused the item
}

// Limits of one batch call. The byte limit leaves room below the server's 32 MiB for the members besides the payload.
const (
	batchItems = 1000
	batchBytes = 30 << 20
)

// SubmitBatch has many tasks accepted, in calls of up to 1,000, and answers them one by one in the order of items. A bad item
// never harms its neighbours. Items whose outcome is unknown are sent again, alone, under the same keys.
//
// The error is not nil if something stopped the whole: the end of ctx, no answer for longer than [WithRetryFor] (for each call
// anew), or a refusal of the call itself, such as unauthenticated. Every item without a receipt then has an error; those not
// known to be refused may have been accepted, and can be sent again with the same keys.
func (c *Client) SubmitBatch(ctx context.Context, items []Item) ([]Result, error) {
	b := batch{items: make([]api.SubmitItem, len(items)), results: make([]Result, len(items))}
	for i := range items {
		b.items[i], b.results[i].Err = items[i].request()
	}
	for next := 0; next < len(items); {
		var call []int
		call, next = b.cut(next)
		if len(call) == 0 {
			continue
		}
		if err := c.submitItems(ctx, &b, call); err != nil {
			b.fail(next, err)
			return b.results, err
		}
	}
	return b.results, nil
}

// batch holds a request item and a result for each item of a SubmitBatch, by index.
type batch struct {
	items   []api.SubmitItem
	results []Result
}

// cut gives the indices of the next call, without the items that were found bad here, and where the one after it begins.
func (b *batch) cut(from int) (call []int, next int) {
	bytes := 0
	for i := from; i < len(b.items); i++ {
		if b.results[i].Err != nil {
			continue
		}
		bytes += len(b.items[i].Payload)
		if len(call) == batchItems || (len(call) > 0 && bytes > batchBytes) {
			return call, i
		}
		call = append(call, i)
	}
	return call, len(b.items)
}

// fail marks what was never sent.
func (b *batch) fail(from int, err error) {
	for i := from; i < len(b.results); i++ {
		if b.results[i].Err == nil {
			b.results[i].Err = fmt.Errorf("orbit: not sent: %w", err)
		}
	}
}

// submitItems settles the items of one call. Each round sends those that have no definite answer yet.
func (c *Client) submitItems(ctx context.Context, b *batch, open []int) error {
	_, err := Retry(ctx, func(ctx context.Context) (struct{}, error) {
		req := &api.SubmitTasksRequest{Items: make([]api.SubmitItem, len(open))}
		for i, at := range open {
			req.Items[i] = b.items[at]
		}
		reply, err := c.API.SubmitTasks(ctx, req, api.SubmitTasksParams{})
		if err == nil && len(reply.Items) != len(open) {
			err = fmt.Errorf("orbit: %d results for %d items", len(reply.Items), len(open))
		}
		if err != nil {
			for _, at := range open {
				b.results[at].Err = plain(err)
			}
			return struct{}{}, err
		}
		open, err = b.take(open, reply.Items)
		return struct{}{}, err
	}, For(c.retryFor))
	return err
}

// take writes down the answers and gives what is still open, with the error of the first such item.
func (b *batch) take(sent []int, answers []api.SubmitResult) (open []int, err error) {
	for i, at := range sent {
		b.results[at] = resultOf(answers[i])
		if itemErr := b.results[at].Err; Retryable(itemErr) {
			open = append(open, at)
			if err == nil {
				err = itemErr
			}
		}
	}
	return open, err
}

func resultOf(answer api.SubmitResult) Result {
	if receipt, ok := answer.Receipt.Get(); ok {
		return Result{Receipt: receiptOf(receipt, answer.Replayed)}
	}
	if err := ItemError(answer.Problem); err != nil {
		return Result{Err: err}
	}
	return Result{Err: fmt.Errorf("orbit: status %d with neither receipt nor problem", answer.Status)}
}

// request checks what would otherwise spoil the whole body.
func (it *Item) request() (api.SubmitItem, error) {
	if it.Key == "" {
		return api.SubmitItem{}, errNoKey
	}
	req, err := it.Submission.request()
	if err != nil {
		return api.SubmitItem{}, err
	}
	return api.SubmitItem{
		IdempotencyKey: it.Key,
		QueueID:        req.QueueID,
		Queue:          req.Queue,
		Type:           req.Type,
		Payload:        req.Payload,
		PayloadVersion: req.PayloadVersion,
		Priority:       req.Priority,
		RunAt:          req.RunAt,
		DelayMs:        req.DelayMs,
		DeadlineAt:     req.DeadlineAt,
		MaxAttempts:    req.MaxAttempts,
	}, nil
}
