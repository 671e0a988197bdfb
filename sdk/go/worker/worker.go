package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbit-run/orbit/sdk/go/client"
)

// Handler does the work of one task type. It may be called by many goroutines at once. What it returns is reported as the
// package documentation says; its first result is encoded as JSON, or taken as it is if it is a [json.RawMessage].
type Handler func(ctx context.Context, t *Task) (any, error)

// Config says what a worker takes and how.
type Config struct {
	Queues      []string // names or ids, 1 to 100
	Concurrency int      // handlers that run at once; 8 if 0

	// Name is the stable name of the worker: at most 128 of A-Z a-z 0-9 . _ : / @ -. A process that opens a session under a
	// name fences the one before it, so that two processes need two names. Empty makes one of host, process and chance.
	Name    string
	Version string // of the program, for people

	// DrainTimeout is how long handlers may go on once Run's context has ended; then theirs ends too. 30 s if 0; negative is
	// not at all.
	DrainTimeout time.Duration

	Logger         *slog.Logger         // slog.Default() if nil
	TracerProvider trace.TracerProvider // the global one if nil
	MeterProvider  metric.MeterProvider // the global one if nil
}

// Worker takes tasks from queues and runs them. Make one with [New], give it handlers, and call Run.
type Worker struct {
	client    *client.Client
	cfg       Config
	telemetry telemetry

	mu       sync.Mutex
	handlers map[string]Handler
	running  bool
}

// New makes a worker. It sends nothing. What is wrong with cfg is an error of Run.
func New(c *client.Client, cfg Config) *Worker {
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 8
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 30 * time.Second
	}
	cfg.DrainTimeout = max(cfg.DrainTimeout, 0)
	if cfg.Name == "" {
		cfg.Name = uniqueName()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Logger = cfg.Logger.With("worker", cfg.Name)
	return &Worker{
		client:    c,
		cfg:       cfg,
		telemetry: newTelemetry(cfg.TracerProvider, cfg.MeterProvider),
		handlers:  map[string]Handler{},
	}
}

// Handle sets the handler of a task type, before Run. A task whose type has none is given back to its queue, with the reason
// no_handler. Handle panics if the type is not one (1 to 128 of A-Z a-z 0-9 . _ : / -) or has a handler already.
func (w *Worker) Handle(taskType string, h Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !isName(taskType):
		panic(fmt.Sprintf("worker: %q is not a task type", taskType))
	case h == nil:
		panic("worker: nil handler of " + taskType)
	case w.handlers[taskType] != nil:
		panic("worker: two handlers of " + taskType)
	case w.running:
		panic("worker: Handle after Run")
	}
	w.handlers[taskType] = h
}

// HandleJSON sets a handler that gets its payload decoded into In. A payload that does not fit fails its task for good, with code
// bad_payload. Numbers that do not fit a float64 need a json.Number or a decimal type in In.
func HandleJSON[In, Out any](w *Worker, taskType string, h func(ctx context.Context, t *Task, in In) (Out, error)) {
	w.Handle(taskType, func(ctx context.Context, t *Task) (any, error) {
		var in In
		if err := json.Unmarshal(t.Payload, &in); err != nil {
			return nil, Permanent(Fail(CodeBadPayload, err.Error()))
		}
		return h(ctx, t, in)
	})
}

// Run opens a session under the worker's name and works until ctx ends, and then drains: claims stop, offers not yet started go
// back, running handlers get [Config.DrainTimeout] to finish before their contexts end too, results are sent, the session is
// closed. Run is then nil, or a [*DrainError] if something was left behind.
//
// It returns early, after the same drain, with [ErrSuperseded] if a later incarnation of the worker's name took over (all
// handlers are cancelled at once), or with a [*client.Problem] if the server refuses the session or its claims: a credential
// without the right, a queue that does not exist. A server that is away is no reason to return: it is waited for.
//
// One Run at a time; each is a new incarnation.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.end()
	s, err := openSession(ctx, w)
	switch {
	case ctx.Err() != nil && s == nil:
		return nil
	case err != nil:
		return err
	}
	return s.run()
}

func (w *Worker) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.running:
		return errors.New("worker: already running")
	case len(w.cfg.Queues) == 0:
		return errors.New("worker: no queues to take from")
	case w.cfg.Concurrency < 0:
		return errors.New("worker: negative concurrency")
	case len(w.handlers) == 0:
		return errors.New("worker: no handlers")
	}
	w.running = true
	return nil
}

func (w *Worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
}

func (w *Worker) types() []string { return slices.Sorted(maps.Keys(w.handlers)) }

func newInstanceID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// uniqueName differs between processes, even of one host and one pid in two containers: two workers under one name would fence
// each other without end.
func uniqueName() string {
	host := strings.Map(func(r rune) rune {
		if isNameRune(r) {
			return r
		}
		return '-'
	}, hostname())
	return fmt.Sprintf("%s:%d:%s", cutRunes(host, 64), os.Getpid(), newInstanceID()[:12])
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		return "host"
	}
	return host
}
