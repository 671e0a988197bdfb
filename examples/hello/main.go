// Command hello is a worker: it greets whoever a task of type hello names. It needs ORBIT_SERVER and ORBIT_KEY.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/sdk/go/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := client.New(os.Getenv("ORBIT_SERVER"), os.Getenv("ORBIT_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	w := worker.New(c, worker.Config{Queues: []string{"default"}, Concurrency: 8})
	worker.HandleJSON(w, "hello", func(ctx context.Context, t *worker.Task, in struct{ Name string }) (string, error) {
		return "hello, " + in.Name, nil
	})
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
