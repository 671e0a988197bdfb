package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// newTraces makes the tracer provider that OpenTelemetry's own variables describe: spans go out by OTLP over HTTP where an
// endpoint is set (OTEL_EXPORTER_OTLP_ENDPOINT or …_TRACES_ENDPOINT), and nowhere otherwise. The end function sends what waits.
func newTraces(ctx context.Context, registry prometheus.Registerer, logger *slog.Logger) (trace.TracerProvider, func(context.Context) error, error) {
	if !tracesWanted() {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	if protocol := firstSet("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, nil, usagef("OTEL_EXPORTER_OTLP_PROTOCOL is %q; traces are sent by http/protobuf", protocol)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	what, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "orbit"), attribute.String("service.version", thisBuild().Version)),
		resource.WithFromEnv()) // last, so that OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	queue := newSpanQueue(exporter, registry, logger)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(queue), sdktrace.WithResource(what))
	return provider, provider.Shutdown, nil
}

func tracesWanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return false
	}
	return firstSet("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

func firstSet(names ...string) string {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	return ""
}

// spanQueue exports spans in batches and never blocks who ends one: a span that finds the queue full is dropped and counted, and
// so is a batch that could not be sent.
type spanQueue struct {
	exporter sdktrace.SpanExporter
	logger   *slog.Logger
	spans    chan sdktrace.ReadOnlySpan
	flush    chan chan struct{}
	ended    chan struct{}
	stopped  chan struct{}
	closing  sync.RWMutex // held shared while a span goes in, so that none comes after the last look
	closed   bool
	dropped  *prometheus.CounterVec
	sent     prometheus.Counter
}

const (
	spanQueueLength = 4096
	spanBatch       = 512
	spanInterval    = 2 * time.Second
	spanExportTime  = 10 * time.Second
)

func newSpanQueue(exporter sdktrace.SpanExporter, registry prometheus.Registerer, logger *slog.Logger) *spanQueue {
	q := &spanQueue{
		exporter: exporter,
		logger:   logger,
		spans:    make(chan sdktrace.ReadOnlySpan, spanQueueLength),
		flush:    make(chan chan struct{}),
		ended:    make(chan struct{}),
		stopped:  make(chan struct{}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_trace_spans_dropped_total", Help: "Spans that were not exported: the queue was full, or sending failed.",
		}, []string{"reason"}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "orbit_trace_spans_exported_total", Help: "Spans that were exported."}),
	}
	registry.MustRegister(q.dropped, q.sent)
	go q.run()
	return q
}

func (q *spanQueue) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (q *spanQueue) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if !q.take(span) {
		q.dropped.WithLabelValues("queue_full").Inc()
	}
}

func (q *spanQueue) take(span sdktrace.ReadOnlySpan) bool {
	q.closing.RLock()
	defer q.closing.RUnlock()
	if q.closed {
		return false
	}
	select {
	case q.spans <- span:
		return true
	default:
		return false
	}
}

func (q *spanQueue) run() {
	defer close(q.ended)
	tick := time.NewTicker(spanInterval)
	defer tick.Stop()
	batch := make([]sdktrace.ReadOnlySpan, 0, spanBatch)
	for {
		var flushed chan struct{}
		select {
		case span := <-q.spans:
			if batch = append(batch, span); len(batch) < spanBatch {
				continue
			}
		case <-tick.C:
		case flushed = <-q.flush:
			batch = q.drain(batch)
		case <-q.stopped:
			q.export(q.drain(batch))
			return
		}
		q.export(batch)
		batch = batch[:0]
		if flushed != nil {
			close(flushed)
		}
	}
}

// drain takes what waits now, in batches of the usual size.
func (q *spanQueue) drain(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	for {
		select {
		case span := <-q.spans:
			if batch = append(batch, span); len(batch) == spanBatch {
				q.export(batch)
				batch = batch[:0]
			}
		default:
			return batch
		}
	}
}

func (q *spanQueue) export(batch []sdktrace.ReadOnlySpan) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spanExportTime)
	defer cancel()
	if err := q.exporter.ExportSpans(ctx, batch); err != nil {
		q.dropped.WithLabelValues("export_failed").Add(float64(len(batch)))
		q.logger.Warn("traces were not sent", "spans", len(batch), "error", err)
		return
	}
	q.sent.Add(float64(len(batch)))
}

func (q *spanQueue) ForceFlush(ctx context.Context) error {
	flushed := make(chan struct{})
	select {
	case q.flush <- flushed:
	case <-q.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *spanQueue) Shutdown(ctx context.Context) error {
	q.closing.Lock()
	if !q.closed {
		q.closed = true
		close(q.stopped)
	}
	q.closing.Unlock()
	select {
	case <-q.ended:
		return q.exporter.Shutdown(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}
