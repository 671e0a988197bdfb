package worker_test

import (
	"context"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/orbit-run/orbit/sdk/go/worker"
)

const submission = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// recorder keeps how spans were started and ended.
type recorder struct {
	noop.TracerProvider
	mu    sync.Mutex
	spans []*recordedSpan
}

type recordedSpan struct {
	noop.Span
	name   string
	config trace.SpanConfig
	status codes.Code
	ended  bool
}

type recordingTracer struct {
	noop.Tracer
	to *recorder
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return recordingTracer{to: r} }

func (t recordingTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	span := &recordedSpan{name: name, config: trace.NewSpanStartConfig(opts...)}
	t.to.mu.Lock()
	t.to.spans = append(t.to.spans, span)
	t.to.mu.Unlock()
	return trace.ContextWithSpan(ctx, span), span
}

func (s *recordedSpan) SetStatus(code codes.Code, _ string) { s.status = code }
func (s *recordedSpan) End(...trace.SpanEndOption)          { s.ended = true }

func TestExecutionIsLinkedToItsSubmission(t *testing.T) {
	r := &recorder{}
	play(t, worker.Config{TracerProvider: r}, func(s *scenario) {
		s.add("traced", "null").traceparent = submission
		s.add("fails", "null")
		s.Handle("traced", echo)
		s.Handle("fails", func(context.Context, *worker.Task) (any, error) { return nil, worker.Fail("no", "no") })
		s.begin()
		s.endCleanly()
	})
	byName := map[string]*recordedSpan{}
	for _, span := range r.spans {
		byName[span.name] = span
	}
	traced, fails := byName["execute traced"], byName["execute fails"]
	if len(r.spans) != 2 || traced == nil || fails == nil {
		t.Fatalf("%d spans, want one for each task", len(r.spans))
	}
	if links := traced.config.Links(); len(links) != 1 || links[0].SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("links = %+v, want the submission", links)
	}
	if !traced.config.NewRoot() || traced.config.SpanKind() != trace.SpanKindConsumer || !traced.ended || traced.status == codes.Error {
		t.Errorf("span of a success: %+v", traced)
	}
	if len(fails.config.Links()) != 0 || fails.status != codes.Error || !fails.ended {
		t.Errorf("span of a failure: %+v", fails)
	}
}

func TestTraceContextIsHandedOnWhereNothingRecords(t *testing.T) {
	play(t, worker.Config{}, func(s *scenario) {
		var got trace.SpanContext
		s.add("traced", "null").traceparent = submission
		s.Handle("traced", func(ctx context.Context, _ *worker.Task) (any, error) {
			got = trace.SpanContextFromContext(ctx)
			return nil, nil
		})
		s.begin()
		s.endCleanly()
		if got.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || !got.IsSampled() {
			t.Errorf("the handler's trace context is %v", got)
		}
	})
}
