package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

const (
	callLimit = 10 * time.Second // one try of a call that does not wait
	stopGrace = 10 * time.Second // after the handlers' contexts have ended, for them to return and for their results
	closeWait = 5 * time.Second  // for the close of the session
)

// session is one incarnation of a worker: what one Run does.
//
// Every attempt that was started is in live until its result is settled: by a receipt, a definite no, or the end of the session.
// Of Concurrency slots each is free, reserved by a claim or offer, or held by a handler.
type session struct {
	*Worker
	api      *api.Client
	log      *slog.Logger
	instance string
	epoch    int64
	interval time.Duration // the longest time between signs of life

	// work ends when nothing new is to be begun. Its cause says why: that of Run's context, or an error of this package.
	work    context.Context
	endWork context.CancelCauseFunc
	// calls ends when nothing more is to be sent.
	calls    context.Context
	endCalls context.CancelFunc
	// begins is calls until the session is superseded: no offer can be started or given back from then on.
	begins    context.Context
	endBegins context.CancelFunc
	values    context.Context // Run's context without its end, for handlers

	offers   sync.WaitGroup // offers being begun or given back
	handling sync.WaitGroup // handlers

	mu          sync.Mutex
	free        int
	claiming    bool                  // a claim is on its way
	seq         int64                 // of the last claim
	live        map[string]*execution // by attempt id
	waiting     []*report             // results to be sent
	unsettled   int                   // results that have neither receipt nor definite no, those under way included
	interrupted error                 // why handlers must end, once they must
	clocks      clocks

	slotFree   signal // a slot or the backlog of results may allow a claim
	resultDue  signal
	beatDue    signal
	resultSent signal
}

// signal wakes one waiter; several before it looks are one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// openSession repeats with the same instance id until there is an answer, so that it makes one incarnation however many tries
// it takes.
func openSession(ctx context.Context, w *Worker) (*session, error) {
	types := w.types()
	req := &api.OpenWorkerSessionRequest{
		WorkerName: w.cfg.Name,
		InstanceID: newInstanceID(),
		Queues:     w.cfg.Queues,
		Types:      types[:min(len(types), 1000)],
		Slots:      w.cfg.Concurrency,
		Host:       api.NewOptString(cutRunes(hostname(), 255)),
		Version:    api.NewOptString(cutRunes(w.cfg.Version, maxNameBytes)),
	}
	sent := time.Now()
	opened, err := repeat(ctx, w.cfg.Logger, "open the session", func(ctx context.Context) (*api.WorkerSession, error) {
		return w.client.API.OpenWorkerSession(ctx, req, api.OpenWorkerSessionParams{})
	})
	if client.HasCode(err, client.CodeSessionSuperseded) {
		return nil, ErrSuperseded
	}
	if err != nil {
		return nil, fmt.Errorf("worker: open the session: %w", err)
	}
	s := &session{
		Worker:   w,
		api:      w.client.API,
		log:      w.cfg.Logger.With("instance_id", opened.InstanceID, "epoch", opened.Epoch),
		instance: opened.InstanceID,
		epoch:    opened.Epoch,
		interval: max(time.Duration(opened.HeartbeatIntervalMs)*time.Millisecond, time.Second),
		values:   context.WithoutCancel(ctx),
		free:     w.cfg.Concurrency,
		live:     map[string]*execution{},
		clocks:   clocks{theirs: opened.OpenedAt, ours: sent},
		slotFree: newSignal(), resultDue: newSignal(), beatDue: newSignal(), resultSent: newSignal(),
	}
	s.work, s.endWork = context.WithCancelCause(ctx)
	s.calls, s.endCalls = context.WithCancel(s.values)
	s.begins, s.endBegins = context.WithCancel(s.calls)
	s.log.Info("session open", "queues", w.cfg.Queues, "types", types, "concurrency", w.cfg.Concurrency)
	return s, nil
}

// repeat calls until there is an answer or ctx ends: for the calls that token, epoch and instance make safe to repeat.
func repeat[T any](ctx context.Context, log *slog.Logger, what string, try func(context.Context) (T, error)) (T, error) {
	return client.Retry(ctx, try, client.For(-1), client.PerTry(callLimit), client.Notify(func(err error, wait time.Duration) {
		log.Warn("will try again to "+what, "error", err, "wait", wait)
	}))
}

// run works until work ends, then drains.
func (s *session) run() error {
	disarm := context.AfterFunc(s.work, s.limitDrain)
	defer disarm()
	defer s.endCalls()

	background := sync.WaitGroup{}
	background.Go(s.sendHeartbeats)
	background.Go(s.sendResults)

	fatal := s.claimTasks()
	s.endWork(fatal)
	s.log.Info("draining", "cause", context.Cause(s.work))

	s.endClaims()
	s.offers.Wait() // ends with calls at the latest
	left := s.drain()
	s.endCalls()
	background.Wait()
	if !errors.Is(fatal, ErrSuperseded) {
		s.close()
	}
	s.log.Info("session ended", "handlers_left", left.Handlers, "results_left", left.Results)
	if left != (DrainError{}) {
		return errors.Join(fatal, &left)
	}
	return fatal
}

// limitDrain is called once work has ended.
func (s *session) limitDrain() {
	patience := s.cfg.DrainTimeout
	if errors.Is(context.Cause(s.work), ErrSuperseded) {
		patience = 0
	}
	handlers := time.AfterFunc(patience, func() { s.interrupt(ErrShutdown) })
	calls := time.AfterFunc(patience+stopGrace, s.endCalls)
	context.AfterFunc(s.calls, func() { handlers.Stop(); calls.Stop() })
}

// drain waits for handlers and for their results, until calls ends at the latest, and tells what is left.
func (s *session) drain() DrainError {
	handled := make(chan struct{})
	go func() {
		s.handling.Wait()
		close(handled)
	}()
	select {
	case <-handled:
	case <-s.calls.Done():
	}
	for {
		s.mu.Lock()
		left := DrainError{Handlers: len(s.live) - s.unsettled, Results: s.unsettled}
		s.mu.Unlock()
		if left.Results == 0 || s.calls.Err() != nil {
			return left
		}
		select {
		case <-s.resultSent:
		case <-s.calls.Done():
		}
	}
}

// close is a courtesy: without it the instance expires by itself.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(s.values, closeWait)
	defer cancel()
	req := &api.CloseWorkerSessionRequest{InstanceID: s.instance, Epoch: s.epoch}
	_, err := client.Retry(ctx, func(ctx context.Context) (*api.ClosedWorkerSession, error) {
		return s.api.CloseWorkerSession(ctx, req, api.CloseWorkerSessionParams{})
	})
	if err != nil {
		s.log.Warn("session not closed; it will expire", "error", err)
	}
}

// superseded ends everything but the reports of what handlers come to, which are kept as evidence. It may be called many times.
func (s *session) superseded() {
	s.interrupt(ErrSuperseded) // before limitDrain can, with another cause
	s.endWork(ErrSuperseded)
	s.endBegins()
}

// interrupt ends the contexts of all handlers, now and later. The first cause counts.
func (s *session) interrupt(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted != nil {
		return
	}
	s.interrupted = cause
	for _, e := range s.live {
		e.cancel(cause)
	}
}

// heedSuperseded looks for the one answer to any call that ends the whole session.
func (s *session) heedSuperseded(err error) {
	if client.HasCode(err, client.CodeSessionSuperseded) {
		s.superseded()
	}
}
