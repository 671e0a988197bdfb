package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

// remoteTimeout bounds what a person at a terminal waits for a server that does not answer.
const remoteTimeout = 20 * time.Second

func (s remoteSettings) client() (*client.Client, error) {
	key, err := secret("key", s.Key, s.KeyFile)
	if err != nil {
		return nil, err
	}
	return client.New(s.Server, key, client.WithUserAgent("orbit-cli/"+thisBuild().Version), client.WithRetryFor(remoteTimeout))
}

// idempotent holds the key of a command that creates or changes something.
type idempotent struct {
	IdempotencyKey string `placeholder:"KEY" help:"Key of the request; a repeat with the same key and content does nothing more and gets the first reply. Made anew where it is missing."`
}

// call sends a changing request under its key and repeats it while its outcome is unknown. When it stays unknown, the key is told:
// only a repeat under it settles what happened.
func call[T any](ctx context.Context, p *printer, i idempotent, send func(ctx context.Context, key api.OptString) (T, error)) (T, error) {
	key := i.IdempotencyKey
	if key == "" {
		key = client.NewKey()
	}
	reply, err := client.Retry(ctx, func(ctx context.Context) (T, error) { return send(ctx, api.NewOptString(key)) }, client.For(remoteTimeout))
	if client.Retryable(err) || errors.Is(err, context.Canceled) {
		p.hint("Whether the request was carried out is not known. The same command with --idempotency-key %s settles it.", key)
	}
	return reply, err
}

// read sends a request that changes nothing.
func read[T any](ctx context.Context, send func(context.Context) (T, error)) (T, error) {
	return client.Retry(ctx, send, client.For(remoteTimeout))
}

// unreachable says of an error of the API's client that nothing listens where the service was looked for.
func unreachable(err error) bool {
	var request *url.Error // what only HTTP has: a dial of the database is none of it
	var dial *net.OpError
	return errors.As(err, &request) && errors.As(request, &dial) && dial.Op == "dial"
}

// collect takes at most limit items of a list; 0 takes all.
func collect[T any](items iter.Seq2[T, error], limit int) ([]T, error) {
	all := []T{}
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if all = append(all, item); len(all) == limit {
			break
		}
	}
	return all, nil
}

// queueID finds a queue by its id or its name.
func queueID(ctx context.Context, c *client.Client, nameOrID string) (string, error) {
	if isID(nameOrID) {
		return nameOrID, nil
	}
	found, err := read(ctx, func(ctx context.Context) (*api.QueueList, error) {
		return c.API.ListQueues(ctx, api.ListQueuesParams{Name: api.NewOptString(nameOrID)})
	})
	if err != nil {
		return "", err
	}
	if len(found.Items) != 1 {
		return "", fmt.Errorf("there is no queue %q that this credential may see", nameOrID)
	}
	return found.Items[0].ID, nil
}

func isID(text string) bool {
	if len(text) != 32 {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// jsonArgument is JSON given on the command line, in a file (@name) or on standard input (-).
type jsonArgument string

func (a jsonArgument) read() (json.RawMessage, error) {
	text := []byte(a)
	var err error
	switch {
	case a == "":
		return nil, nil
	case a == "-":
		text, err = io.ReadAll(os.Stdin)
	case a[0] == '@':
		text, err = os.ReadFile(string(a[1:]))
	}
	if err != nil {
		return nil, err
	}
	if !json.Valid(text) {
		return nil, usagef("the payload is not JSON (a text needs its quotes: '\"text\"')")
	}
	return text, nil
}
