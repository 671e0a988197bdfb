package worker_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/sdk/go/worker"
)

// A whole worker. SIGTERM and SIGINT drain it.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	c, err := client.New(os.Getenv("ORBIT_SERVER"), os.Getenv("ORBIT_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	w := worker.New(c, worker.Config{Queues: []string{"mail"}, Concurrency: 8})
	w.Handle("mail.welcome", func(ctx context.Context, t *worker.Task) (any, error) {
		return sendMail(ctx, t.EffectKey(), t.Payload)
	})
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// The payload decoded, progress told, and each way to fail.
func ExampleHandleJSON() {
	type invoice struct{ Number string }
	type sent struct{ Pages int }
	var w *worker.Worker // from worker.New

	worker.HandleJSON(w, "invoice.print", func(ctx context.Context, t *worker.Task, in invoice) (sent, error) {
		pages, err := render(in.Number)
		switch {
		case err == errNoSuchInvoice:
			return sent{}, worker.Permanent(worker.Fail("no_such_invoice", in.Number))
		case err == errPrinterBusy:
			return sent{}, worker.RetryAfter(err, 5*time.Minute)
		case err != nil:
			return sent{}, err // tried again after the queue's backoff
		}
		for i := range pages {
			if ctx.Err() != nil {
				return sent{}, ctx.Err() // asked to stop: cancelled
			}
			if err := t.Progress(map[string]int{"page": i + 1, "of": pages}); err != nil {
				return sent{}, err
			}
		}
		return sent{Pages: pages}, nil
	})
}

var errNoSuchInvoice, errPrinterBusy error

func render(string) (int, error) { return 0, nil }

func sendMail(context.Context, string, []byte) (any, error) { return nil, nil }
