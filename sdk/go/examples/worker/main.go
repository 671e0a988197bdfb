// Command worker takes mail.welcome tasks from the queue mail. Start it with ORBIT_URL and ORBIT_KEY; stop it with SIGTERM or
// Ctrl-C, which lets what is running finish.
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	c, err := client.New(os.Getenv("ORBIT_URL"), os.Getenv("ORBIT_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	w := worker.New(c, worker.Config{Queues: []string{"mail"}, Concurrency: 8})
	worker.HandleJSON(w, "mail.welcome", func(_ context.Context, t *worker.Task, in struct{ To string }) (string, error) {
		return "welcomed " + in.To + " under " + t.EffectKey(), nil
	})
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
