package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/sdk/go/api"
)

// NewKey makes an idempotency key: 32 hexadecimal digits, ordered by the time of their making (which keeps neighbours close in
// the server's index), unguessable in their tail.
//
// Make a key once for each thing to be done, before the first try, and keep it with that thing for as long as a repeat is
// possible: a repeat under a new key is a second task. Better still, derive the key from the thing itself, such as
// "order-8841-welcome".
func NewKey() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: the runtime ends the process if the system has no randomness
	ms := time.Now().UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	return hex.EncodeToString(b[:])
}

// JSON encodes v as a payload or result. It panics where v cannot be encoded (a channel, a function, a cycle), which is a
// mistake in the program.
func JSON(v any) json.RawMessage {
	raw, err := Encode(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// Encode is JSON without the panic. A [json.RawMessage] is taken as it is, digit by digit; anything else is encoded without
// escapes for HTML.
func Encode(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		if len(raw) > 0 && !json.Valid(raw) {
			return nil, errors.New("orbit: the raw message is not JSON")
		}
		return raw, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("orbit: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Submission is a task to be done. Exactly one of Queue and QueueID is set; at most one of RunAt and Delay.
type Submission struct {
	Queue   string // the queue's name; which queue that is is settled at acceptance
	QueueID string // the queue's id
	Type    string // names the handler

	Payload        json.RawMessage // any JSON of at most 8 MiB; nil is null
	PayloadVersion uint32          // the submitter's own version of the payload's shape

	Priority    int           // 1 goes first, 9 last; 0 is the default, 5
	RunAt       time.Time     // not before; the zero time is at once
	Delay       time.Duration // not before this long after acceptance, whole milliseconds
	DeadlineAt  time.Time     // fails if it has not ended by then; the zero time is never
	MaxAttempts int           // the first included; 0 takes the queue's
}

// Receipt proves that a task was accepted. A repeat gets the same one.
type Receipt struct {
	TaskID     string
	QueueID    string
	Type       string
	AcceptedAt time.Time // by the database's clock
	RunAt      time.Time // not offered before
	Replayed   bool      // whether this repeats an earlier reply
}

// Submit has a task accepted under key, and repeats after unknown outcomes (see [WithRetryFor]). Once it returns a receipt the
// task is durable.
//
// A repeat with the same key and content, from any process, gets the first receipt. With other content it is the problem
// idempotency_conflict and nothing is done. After any other error than a definite no the task may have been accepted: call
// Submit again with the same key.
func (c *Client) Submit(ctx context.Context, key string, s Submission) (Receipt, error) {
	if key == "" {
		return Receipt{}, errNoKey
	}
	req, err := s.request()
	if err != nil {
		return Receipt{}, err
	}
	params := api.SubmitTaskParams{IdempotencyKey: api.NewOptString(key)}
	return Retry(ctx, func(ctx context.Context) (Receipt, error) {
		reply, err := c.API.SubmitTask(ctx, req, params)
		if err != nil {
			return Receipt{}, err
		}
		return receiptOf(reply.Response, reply.IdempotencyReplayed.Value), nil
	}, For(c.retryFor))
}

var errNoKey = errors.New("orbit: a submission needs an idempotency key: make one before the first try (NewKey) and keep it")

func (s *Submission) request() (*api.SubmitTaskRequest, error) {
	if len(s.Payload) > 0 && !json.Valid(s.Payload) {
		return nil, errors.New("orbit: the payload is not JSON")
	}
	return &api.SubmitTaskRequest{
		QueueID:        optString(s.QueueID),
		Queue:          optString(s.Queue),
		Type:           s.Type,
		Payload:        jx.Raw(s.Payload),
		PayloadVersion: optInt64(int64(s.PayloadVersion)),
		Priority:       optInt(s.Priority),
		RunAt:          optTime(s.RunAt),
		DelayMs:        optInt64(s.Delay.Milliseconds()),
		DeadlineAt:     optTime(s.DeadlineAt),
		MaxAttempts:    optInt(s.MaxAttempts),
	}, nil
}

func receiptOf(r api.AcceptanceReceipt, replayed bool) Receipt {
	return Receipt{TaskID: r.TaskID, QueueID: r.QueueID, Type: r.Type, AcceptedAt: r.AcceptedAt, RunAt: r.RunAt, Replayed: replayed}
}

// The zero value of each member of a Submission is not sent, so that the server's default holds.

func optString(s string) (o api.OptString) {
	if s != "" {
		o.SetTo(s)
	}
	return o
}

func optInt(n int) (o api.OptInt) {
	if n != 0 {
		o.SetTo(n)
	}
	return o
}

func optInt64(n int64) (o api.OptInt64) {
	if n != 0 {
		o.SetTo(n)
	}
	return o
}

func optTime(t time.Time) (o api.OptDateTime) {
	if !t.IsZero() {
		o.SetTo(t)
	}
	return o
}
