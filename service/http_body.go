package service

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/strict"
)

// Limits of request bodies, in bytes.
const (
	maxBody      = 9 << 20
	maxBatchBody = 32 << 20
)

// batchOperations are those whose items are judged one by one, with what each item is digested as.
var batchOperations = map[string]struct {
	subject strict.Subject
	omit    string
}{
	// An item of a batch is the single submit with its key beside it, so that one key is one task whichever way it came.
	"submitTasks":       {strict.Subject{Operation: "submitTask", Path: "/v1/tasks"}, "idempotency_key"},
	"startAttempts":     {strict.Subject{Operation: "startAttempts", Path: "/v1/attempts:start"}, ""},
	"heartbeatAttempts": {strict.Subject{Operation: "heartbeatAttempts", Path: "/v1/attempts:heartbeat"}, ""},
	"finishAttempts":    {strict.Subject{Operation: "finishAttempts", Path: "/v1/attempts:finish"}, ""},
	"releaseAttempts":   {strict.Subject{Operation: "releaseAttempts", Path: "/v1/attempts:release"}, ""},
}

// maxItems is the most items of a batch.
const maxItems = 1000

// withBody puts the strict scan around the body. It happens at the first read, which is the decoder's: after the caller was let in, before
// anything is decoded.
func (e *edge) withBody(ctx context.Context, w http.ResponseWriter, in *http.Request) *http.Request {
	r := requestFrom(ctx)
	ctx, scanned := body.With(ctx)
	subject := strict.Subject{Operation: r.operation, Path: in.URL.Path}
	scanned.Digest = subject.NoBody()
	out := in.WithContext(ctx)
	if in.Body != nil && in.Body != http.NoBody {
		out.Body = &scannedBody{
			wire: in.Body, length: in.ContentLength, encoding: in.Header.Get("Content-Encoding"), subject: subject, result: scanned,
			deadline: func(wait time.Duration) {
				var at time.Time
				if wait > 0 {
					at = e.service.options.HostClock().Add(wait)
				}
				_ = http.NewResponseController(w).SetReadDeadline(at) // a connection without deadlines is bounded by its server
			},
			patience: e.service.options.BodyTime,
		}
	}
	return out
}

// scannedBody reads the whole body at its first read, judges it, and then gives it, or the refusal.
type scannedBody struct {
	wire     io.ReadCloser
	length   int64
	encoding string
	subject  strict.Subject
	result   *body.Body
	deadline func(time.Duration)
	patience time.Duration

	read bool
	rest bytes.Reader
	err  error
}

func (b *scannedBody) Read(p []byte) (int, error) {
	if !b.read {
		b.read = true
		raw, err := b.receive()
		if err == nil {
			err = b.scan(raw)
		}
		b.err = err
		b.rest.Reset(raw)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *scannedBody) Close() error { return b.wire.Close() }

func (b *scannedBody) receive() ([]byte, error) {
	limit := int64(maxBody)
	if _, ok := batchOperations[b.subject.Operation]; ok {
		limit = maxBatchBody
	}
	switch {
	case b.encoding != "" && b.encoding != "identity":
		return nil, fault.New(fault.UnsupportedMedia, "bodies are taken without a Content-Encoding")
	case b.length > limit:
		defer b.deadline(0)
		b.discard()
		return nil, tooLarge(limit)
	}
	b.deadline(b.patience)
	defer b.deadline(0)
	// Grown as bytes arrive: what a caller only announces costs nothing.
	var raw bytes.Buffer
	_, err := raw.ReadFrom(io.LimitReader(b.wire, limit+1))
	switch {
	case int64(raw.Len()) > limit:
		b.discard()
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.New(fault.RequestTimeout, "the body did not arrive within %s; send it again", b.patience)
	case err != nil:
		return nil, fault.New(fault.RequestTimeout, "the body broke off before it was complete; send it again")
	}
	return raw.Bytes(), nil
}

// What is read of a body that is too large, so that a client which writes before it reads gets its answer.
const (
	discardBytes = 64 << 20
	discardTime  = 5 * time.Second
)

func (b *scannedBody) discard() {
	b.deadline(discardTime)
	_, _ = io.CopyN(io.Discard, b.wire, discardBytes)
}

func tooLarge(limit int64) *fault.Fault {
	return fault.New(fault.PayloadTooLarge, "the body of this operation has at most %d bytes", limit)
}

// scan judges the body. A refused item of a batch becomes a 0 in the bytes that are decoded, so that it cannot fail its neighbours.
func (b *scannedBody) scan(raw []byte) (err error) {
	if len(raw) == 0 {
		return nil
	}
	batch, ok := batchOperations[b.subject.Operation]
	if !ok {
		b.result.Digest, err = strict.Scan(b.subject, raw)
		return err
	}
	b.result.Items, err = strict.ScanItems(batch.subject, raw, strict.Batch{Field: "items", Omit: batch.omit, Limit: maxItems})
	for _, item := range b.result.Items {
		if item.Faults != nil {
			blank(item.Raw)
		}
	}
	return err
}

func blank(item []byte) {
	for i := range item {
		item[i] = ' '
	}
	item[0] = '0'
}
