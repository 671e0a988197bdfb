// Package worker runs tasks of Orbit queues with handlers chosen by task type.
//
//	w := worker.New(c, worker.Config{Queues: []string{"mail"}, Concurrency: 8})
//	w.Handle("mail.welcome", func(ctx context.Context, t *worker.Task) (any, error) {
//		return send(ctx, t.Payload, t.EffectKey())
//	})
//	err := w.Run(ctx)
//
// # What it promises
//
// A handler runs only after the server has confirmed the start of its attempt. Its lease is renewed in the background until its
// result has a receipt or a definite no; results are sent again across restarts of the server and while it is away. A lost reply
// of a claim is given back by its claim_seq, a lost reply of a start, a heartbeat or a result is answered by the same call again.
//
// A busy worker claims with its results, and lets the server start at once what its queue allows to ([api.Queue].OneStep).
//
// What it cannot promise is that a handler's effect on the outside world happens once: a worker that dies after the effect and
// before the result leaves an unknown outcome, which the queue's policy turns into a retry or a review. [Task.EffectKey] is the
// same for every attempt of a task: hand it to whatever the effect is made on.
//
// # How a handler ends
//
//	value, nil                      succeeded, with value as its result
//	nil, err                        failed; tried again while the task's budget lasts, after the queue's backoff
//	nil, RetryAfter(err, d)         the same, after d instead
//	nil, Permanent(err)             failed for good
//	nil, Fail(code, message)        failed with a code of its own; Permanent and RetryAfter wrap it
//	panic                           failed with code "panic", tried again
//	nil, ctx.Err() after a cancel   cancelled
//
// # How its context ends
//
// [context.Cause] tells why: [ErrCancelled] if somebody asked to cancel the task, [ErrLeaseLost] if the attempt is no longer this
// worker's, [ErrSuperseded] if the whole worker is not, [ErrShutdown] if the drain took too long. Whatever the handler then returns
// is still sent: what can no longer be taken is kept with the attempt as evidence.
package worker
