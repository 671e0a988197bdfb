package worker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbit-run/orbit/sdk/go/api"
)

const scope = "github.com/orbit-run/orbit/sdk/go/worker"

// telemetry makes a span and two measurements of each execution: orbit.worker.running (how many now) and
// orbit.worker.duration (seconds, by type and outcome).
type telemetry struct {
	tracer   trace.Tracer
	running  metric.Int64UpDownCounter
	duration metric.Float64Histogram
}

func newTelemetry(tp trace.TracerProvider, mp metric.MeterProvider) telemetry {
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	meter := mp.Meter(scope)
	running, err := meter.Int64UpDownCounter("orbit.worker.running",
		metric.WithDescription("Handlers that run now."), metric.WithUnit("{handler}"))
	handleError(err)
	duration, err := meter.Float64Histogram("orbit.worker.duration",
		metric.WithDescription("Time in handlers, by task type and outcome."), metric.WithUnit("s"))
	handleError(err)
	return telemetry{tracer: tp.Tracer(scope), running: running, duration: duration}
}

// handleError hands an instrument's error to OpenTelemetry's own handler: no telemetry is a reason not to work.
func handleError(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

// begin starts the span of an execution: a trace of its own, linked to the submission's, since the two may lie days apart. Where
// nothing records, the submission's trace context is handed on instead. The function it gives ends the span.
func (t *telemetry) begin(ctx context.Context, o *api.Offer) (context.Context, func(outcome)) {
	carrier := propagation.MapCarrier{"traceparent": o.Traceparent.Value, "tracestate": o.Tracestate.Value}
	ctx = propagation.TraceContext{}.Extract(ctx, carrier)
	taskType := attribute.String("orbit.task.type", o.Type)
	var links []trace.Link
	if submission := trace.SpanContextFromContext(ctx); submission.IsValid() {
		links = append(links, trace.Link{SpanContext: submission})
	}
	ctx, span := t.tracer.Start(ctx, "execute "+o.Type,
		trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(links...),
		trace.WithAttributes(taskType,
			attribute.String("orbit.task.id", o.TaskID),
			attribute.String("orbit.attempt.id", o.AttemptID),
			attribute.Int("orbit.attempt.number", o.AttemptNumber)))
	t.running.Add(ctx, 1, metric.WithAttributes(taskType))
	started := time.Now()
	return ctx, func(out outcome) {
		if out.kind == api.OutcomeFailed {
			span.SetStatus(codes.Error, out.failure.Code+": "+out.failure.Message)
		}
		t.running.Add(ctx, -1, metric.WithAttributes(taskType))
		t.duration.Record(ctx, time.Since(started).Seconds(),
			metric.WithAttributes(taskType, attribute.String("orbit.outcome", string(out.kind))))
		span.End()
	}
}
