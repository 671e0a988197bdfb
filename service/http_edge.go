package service

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/platform"
)

// edge is around the generated server: it names, bounds, times and logs each request, and lets no failure out that is not a problem document.
type edge struct {
	service *Service
	server  *api.Server
}

func (s *Service) newEdge() (http.Handler, error) {
	e := &edge{service: s}
	h := handler{s.platform, s.pulse, s}
	var err error
	e.server, err = api.NewServer(h, h,
		api.WithErrorHandler(e.fail),
		api.WithNotFound(e.notFound),
		api.WithMethodNotAllowed(e.methodNotAllowed),
		api.WithTracerProvider(s.options.TracerProvider),
	)
	return e, err
}

// request is what is known of one request; it is filled in on the way.
type request struct {
	id        string
	operation string     // operationId; empty if none matches
	address   netip.Addr // invalid if it is not known
	namespace string     // asserted
	actor     string     // asserted
	caller    platform.Caller
	status    int
	warned    bool // that something it needs is not available
}

type requestKey struct{}

// requestFrom gives the request of a context; outside of one, a request that has nothing.
func requestFrom(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// statusGone is logged and counted, and never sent, for a request whose caller was gone before its answer.
const statusGone = 499

func (e *edge) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	clock := e.service.options.HostClock
	begin := clock()
	r := &request{id: requestID(in.Header.Get("X-Request-Id"), begin)}
	if from, err := netip.ParseAddrPort(in.RemoteAddr); err == nil {
		r.address = from.Addr()
	}
	out := &recorder{ResponseWriter: w, request: r}
	out.Header().Set("X-Request-Id", r.id)
	out.Header().Set("Cache-Control", "no-store")
	out.Header().Set("X-Content-Type-Options", "nosniff")
	ctx := context.WithValue(in.Context(), requestKey{}, r)
	e.service.metrics.inFlight.Inc()
	defer func() {
		e.service.metrics.inFlight.Dec()
		if p := recover(); p != nil {
			e.panicked(ctx, out, p)
		}
		if in.Context().Err() != nil && r.status >= 500 || r.status == 0 {
			r.status = statusGone
		}
		took := clock().Sub(begin)
		e.service.metrics.observeRequest(r, took)
		e.log(ctx, in, r, took)
	}()
	e.serve(ctx, out, w, in)
}

func (e *edge) serve(ctx context.Context, out *recorder, raw http.ResponseWriter, in *http.Request) {
	r := requestFrom(ctx)
	ctx = extractTrace(ctx, in.Header)
	if route, ok := e.server.FindPath(in.Method, in.URL); ok {
		r.operation = route.OperationID()
	}
	if f := readHeaders(r, in.Header); f != nil {
		writeProblem(out, e.service.failed(ctx, f))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.patience(r.operation, in))
	defer cancel()
	e.server.ServeHTTP(out, e.withBody(ctx, raw, in))
}

// maxWait is the longest that a request may ask to be kept waiting.
const maxWait = 30 * time.Second

// patience bounds a request as a whole, so that reading from a database that never answers ends. Transactions have their own bound, and outlive
// this one.
func (e *edge) patience(operation string, in *http.Request) time.Duration {
	limit := e.service.options.StatementTime
	if in.Body != nil && in.Body != http.NoBody {
		limit += e.service.options.BodyTime
	}
	if operation == "claimTasks" {
		limit += maxWait
	}
	return limit
}

// requestID echoes an id that is 1 to 128 visible ASCII characters, and makes one otherwise.
func requestID(given string, now time.Time) string {
	if given == "" || len(given) > 128 {
		return orbit.NewID(now).String()
	}
	for i := range len(given) {
		if given[i] < '!' || given[i] > '~' {
			return orbit.NewID(now).String()
		}
	}
	return given
}

// extractTrace takes the W3C trace context of the caller; one that is not well formed, or too long, is ignored.
func extractTrace(ctx context.Context, h http.Header) context.Context {
	carrier := propagation.MapCarrier{"traceparent": h.Get("traceparent")}
	if state := h.Get("tracestate"); len(state) <= 512 {
		carrier["tracestate"] = state
	}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}

// readHeaders reads what holds for every operation, and refuses header lines of which nobody could say which one is meant.
func readHeaders(r *request, h http.Header) *fault.Fault {
	for _, name := range []string{"Authorization", "Idempotency-Key", "If-Match", "Orbit-Namespace", "Orbit-Actor"} {
		if len(h[name]) > 1 {
			return fault.Invalid("header/"+name, "repeated", "there are %d header lines of this name; send one", len(h[name]))
		}
	}
	r.namespace, r.actor = h.Get("Orbit-Namespace"), h.Get("Orbit-Actor")
	for name, asserted := range map[string]string{"Orbit-Namespace": r.namespace, "Orbit-Actor": r.actor} {
		// Present but empty asserts nothing, which is not what a caller with an unset variable means.
		if _, err := orbit.ParseID(asserted); len(h[name]) > 0 && err != nil {
			return fault.Invalid("header/"+name, "pattern", "%s", err)
		}
	}
	if key, ok := h["Idempotency-Key"]; ok {
		if r.operation == "submitTasks" {
			return fault.Invalid("header/Idempotency-Key", "not_taken", "each item of a batch carries its own key, in idempotency_key")
		}
		h.Set("Idempotency-Key", unquote(key[0]))
	}
	return nil
}

// unquote gives the text of a quoted string (RFC 8941), so that "k" and k are one key; anything else is left as it is.
func unquote(key string) string {
	if len(key) < 2 || key[0] != '"' || key[len(key)-1] != '"' {
		return key
	}
	inner := key[1 : len(key)-1]
	text := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		switch c := inner[i]; {
		case c == '"':
			return key
		case c == '\\':
			if i++; i == len(inner) || inner[i] != '"' && inner[i] != '\\' {
				return key
			}
		}
		text = append(text, inner[i])
	}
	return string(text)
}

// fail answers what the generated server could not decode. After a reply has begun there is nothing left to say: its caller is gone.
func (e *edge) fail(ctx context.Context, w http.ResponseWriter, in *http.Request, err error) {
	if r := requestFrom(ctx); r.status != 0 {
		e.service.options.Logger.DebugContext(ctx, "reply not written", "operation", r.operation, "request_id", r.id, "error", err)
		return
	}
	writeProblem(w, e.service.failed(ctx, withMediaType(err, in)))
}

func (e *edge) notFound(w http.ResponseWriter, in *http.Request) {
	writeProblem(w, e.service.failed(in.Context(), fault.New(fault.NotFound, "there is nothing at this path; the API is described at /docs")))
}

func (e *edge) methodNotAllowed(w http.ResponseWriter, in *http.Request, allowed string) {
	for _, name := range []string{"Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Accept-Post", "Accept-Patch"} {
		w.Header().Del(name) // browsers of other origins are not served, so none is told what it might send
	}
	w.Header().Set("Allow", allowed)
	writeProblem(w, e.service.failed(in.Context(), fault.New(fault.MethodNotAllowed, "%s is not taken here; %s is", in.Method, allowed)))
}

func (e *edge) panicked(ctx context.Context, out *recorder, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	e.service.options.Logger.ErrorContext(ctx, "request panicked", "panic", p, "stack", string(debug.Stack()),
		"request_id", out.request.id, "operation", out.request.operation)
	if out.request.status == 0 {
		writeProblem(out, withHeaders(problemOf(describe(errPanicked), out.request.id)))
	}
}

var errPanicked = errors.New("the operation panicked")

func (e *edge) log(ctx context.Context, in *http.Request, r *request, took time.Duration) {
	attributes := []slog.Attr{
		slog.String("method", in.Method), slog.String("path", in.URL.Path), slog.String("operation", r.operation),
		slog.Int("status", r.status), slog.Duration("duration", took), slog.String("request_id", r.id),
	}
	if !r.caller.NamespaceID.IsZero() {
		attributes = append(attributes, slog.String("namespace", r.caller.NamespaceID.String()), slog.String("credential", r.caller.CredentialID.String()))
	}
	if span := trace.SpanContextFromContext(extractTrace(ctx, in.Header)); span.IsValid() {
		attributes = append(attributes, slog.String("trace_id", span.TraceID().String()))
	}
	e.service.options.Logger.LogAttrs(ctx, slog.LevelInfo, "request", attributes...)
}

// recorder notes the status that was sent.
type recorder struct {
	http.ResponseWriter
	request *request
}

func (w *recorder) WriteHeader(status int) {
	if w.request.status == 0 && status >= 200 {
		w.request.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.request.status == 0 {
		w.request.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
