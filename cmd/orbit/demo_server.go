package main

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/service"
)

// migrate makes the database ready, keeps its DSN for the server and for whoever looks at it later, and finds a key that works, or makes one.
func (d *demo) migrate(ctx context.Context) error {
	dsn, err := d.dsn()
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.dsnFile(), []byte(dsn+"\n"), 0o600); err != nil {
		return err
	}
	d.env = []string{"ORBIT_DSN_FILE=" + d.dsnFile()}
	if err := schema.Up(ctx, dsn, schema.UpOptions{Program: thisBuild().program()}); err != nil {
		return err
	}
	if _, err := os.Stat(d.keyFile()); err == nil {
		return nil
	}
	return d.makeKey(ctx)
}

// makeKey makes a credential that may do everything, and keeps its key.
func (d *demo) makeKey(ctx context.Context) error {
	var key string
	err := d.withHost(ctx, func(h service.Host) error {
		issued, err := h.Bootstrap(ctx, service.Bootstrap{})
		if err != nil { // there are credentials already: one more
			n, notFound := h.Namespace(ctx, "default/default")
			if notFound != nil {
				return errors.Join(err, notFound)
			}
			issued, err = h.CreateCredential(ctx, n.ID, service.NewCredential{Name: "demo", Actions: []string{"*"}, Queues: []string{"*"}})
		}
		if err == nil {
			key = issued.Key.Text()
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(d.keyFile(), []byte(key+"\n"), 0o600)
}

// serve starts the server at an address that it keeps when it is started again.
func (d *demo) serve(ctx context.Context) error {
	address, err := fixedAddress(ctx, d.Listen)
	if err != nil {
		return err
	}
	d.Listen, d.url = address, "http://"+address
	if err := d.startServer(ctx); err != nil {
		return err
	}
	err = d.connect(ctx)
	if client.HasCode(err, client.CodeUnauthenticated) {
		d.p.hint("the key in %s is of another database, or ended; making a new one", d.keyFile())
		err = errors.Join(d.makeKey(ctx), d.connect(ctx))
	}
	return err
}

// connect proves that the key works.
func (d *demo) connect(ctx context.Context) (err error) {
	if d.remote, err = (remoteSettings{Server: d.url, KeyFile: d.keyFile()}).client(); err != nil {
		return err
	}
	_, err = d.remote.Credential(ctx)
	return err
}

func (d *demo) startServer(ctx context.Context) (err error) {
	if d.server, err = startProcess(d.RunDir, "orbit", d.env, "serve", "--listen", d.Listen, "--drain-delay", "0s"); err != nil {
		return err
	}
	return d.server.awaitReady(ctx, d.url)
}

// fixedAddress is the address itself, or one with another port where that one is taken.
func fixedAddress(ctx context.Context, address string) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", freeAddress(address))
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// verify counts the invariants that do not hold, and prints where.
func (d *demo) verify(ctx context.Context) (broken int, err error) {
	err = d.withService(ctx, func(replica *service.Service) error {
		found, err := replica.Verify(ctx)
		for _, f := range found[:min(len(found), mismatchesShown)] {
			d.p.hint("invariant broken: %s: %s: %s", f.Invariant, f.ID, f.Detail)
		}
		broken = len(found)
		return err
	})
	return broken, err
}
