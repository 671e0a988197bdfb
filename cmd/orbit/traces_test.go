package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// slowExporter takes its first batch and keeps it until it is let go.
type slowExporter struct {
	entered, let chan struct{}
	once         sync.Once
	err          error
	mu           sync.Mutex
	spans        int
}

func (e *slowExporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.once.Do(func() { close(e.entered) })
	<-e.let
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spans += len(spans)
	return e.err
}

func (e *slowExporter) Shutdown(context.Context) error { return nil }

func newSlowExporter(err error) *slowExporter {
	return &slowExporter{entered: make(chan struct{}), let: make(chan struct{}), err: err}
}

func spans(tracer trace.Tracer, n int) {
	for range n {
		_, span := tracer.Start(context.Background(), "work")
		span.End()
	}
}

func TestSpansNeverBlockAndCountWhatIsLost(t *testing.T) {
	exporter := newSlowExporter(nil)
	q := newSpanQueue(exporter, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q)).Tracer("test")
	spans(tracer, spanBatch)
	<-exporter.entered // the first batch is with the exporter and the queue is empty
	const more = 50
	spans(tracer, spanQueueLength+more)
	if got := testutil.ToFloat64(q.dropped.WithLabelValues("queue_full")); got != more {
		t.Errorf("%v spans dropped, want %d", got, more)
	}
	close(exporter.let)
	if err := q.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := spanBatch + spanQueueLength; exporter.spans != want || testutil.ToFloat64(q.sent) != float64(want) {
		t.Errorf("%d spans exported, %v counted, want %d", exporter.spans, testutil.ToFloat64(q.sent), want)
	}
	spans(tracer, 1)
	if got := testutil.ToFloat64(q.dropped.WithLabelValues("queue_full")); got != more+1 {
		t.Errorf("a span after the end was not counted: %v", got)
	}
}

func TestSpansThatCannotBeSentAreCounted(t *testing.T) {
	exporter := newSlowExporter(errors.New("nobody there"))
	close(exporter.let)
	q := newSpanQueue(exporter, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q)).Tracer("test")
	spans(tracer, 3)
	if err := q.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := testutil.ToFloat64(q.dropped.WithLabelValues("export_failed")); got != 3 {
		t.Errorf("%v spans counted, want 3", got)
	}
	if err := q.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracesGoWhereOpenTelemetrySays(t *testing.T) {
	received := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case received <- r.URL.Path:
		default:
		}
	}))
	defer collector.Close()
	traced := func() bool {
		provider, end, err := newTraces(t.Context(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		spans(provider.Tracer("test"), 1)
		if err := end(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case path := <-received:
			return path == "/v1/traces"
		default:
			return false
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	if traced() {
		t.Error("traces were sent although no endpoint is set")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	if !traced() {
		t.Error("no trace reached the endpoint")
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	if traced() {
		t.Error("traces were sent although the exporter is none")
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	if _, _, err := newTraces(t.Context(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a protocol that is not spoken was accepted")
	}
}
