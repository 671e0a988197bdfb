package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/orbit-run/orbit/sdk/go/worker"
)

const (
	demoTaskType   = "file.digest"
	codeUnreadable = "unreadable"
)

// demoFile is the payload of a file.digest task.
type demoFile struct {
	Path string `json:"path"` // slash-separated, relative to the directory that the worker was given
}

// demoWorkerCommand is one of the demo's worker processes, which it starts and kills.
type demoWorkerCommand struct {
	remoteSettings
	Root        string `arg:"" type:"existingdir" help:"Directory that the paths in payloads are relative to. No path leads out of it."`
	Queue       string `required:"" help:"Queue to take tasks from."`
	Name        string `help:"Name of the worker; one that no other has where it is missing."`
	Concurrency int    `default:"8" help:"Files to read at once (${default})."`
}

func (c *demoWorkerCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(c.Root)
	if err != nil {
		return err
	}
	w := worker.New(remote, worker.Config{
		Queues: []string{c.Queue}, Concurrency: c.Concurrency, Name: c.Name, Version: thisBuild().Version,
		Logger: slog.New(slog.NewJSONHandler(p.err, nil)),
	})
	worker.HandleJSON(w, demoTaskType, func(_ context.Context, _ *worker.Task, in demoFile) (fileDigest, error) {
		return digestUnder(root, in.Path)
	})
	return errors.Join(w.Run(ctx), root.Close())
}

func digestUnder(root *os.Root, path string) (fileDigest, error) {
	file, err := root.Open(path)
	var d fileDigest
	if err == nil {
		d, err = digestStream(file)
		err = errors.Join(err, file.Close())
	}
	if err != nil && unreadable(err) {
		return d, worker.Permanent(worker.Fail(codeUnreadable, err.Error()))
	}
	return d, err
}
