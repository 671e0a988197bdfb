package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-sql-driver/mysql"

	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
	"github.com/orbit-run/orbit/service"
)

type developmentSettings struct {
	MySQLImage string `name:"mysql-image" env:"ORBIT_MYSQL_IMAGE" placeholder:"IMAGE" help:"Image of the container that orbit dev starts; mysql:8.4 or orbit-mysql:local, whichever is there, where it is missing."`
}

// devCommand runs everything on a database of its own. Without a DSN that is in a container of its own.
type devCommand struct {
	databaseSettings
	developmentSettings
	Address  string `default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Where to serve; another port of the same host where this one is taken (${default})."`
	Queue    string `default:"default" help:"Name of the queue to make (${default})."`
	Keep     bool   `help:"Leave the database, and its container, when the command ends."`
	LogLevel string `enum:"debug,info,warn,error" default:"warn" help:"Least level of what is logged: ${enum}."`
}

const devQueueTime = 30 * time.Second

func (c *devCommand) Run(ctx commandContext, p *printer) (err error) {
	database, err := c.database(ctx, p)
	if err != nil {
		return err
	}
	if c.Keep {
		defer p.hint("The database stays: %s", database.shown)
	} else {
		defer func() { err = errors.Join(err, database.remove()) }()
	}
	if err := schema.Up(ctx, database.dsn, schema.UpOptions{Program: thisBuild().program()}); err != nil {
		return err
	}
	var issued service.Issued
	err = databaseSettings{DSN: database.dsn}.withHost(ctx, func(h service.Host) (err error) {
		issued, err = h.Bootstrap(ctx, service.Bootstrap{})
		return err
	})
	if err != nil {
		return err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	settings := serverSettings{
		Listen: freeAddress(c.Address), Roles: []string{"api", "engine"}, DrainTimeout: 5 * time.Second,
		DatabaseWait: time.Minute, DatabaseConnections: 16, AcceptWeakDurability: true, LogLevel: c.LogLevel, LogFormat: "text",
	}
	ready := func(address string) {
		go func() {
			if err := c.introduce(running, p, database, issued, "http://"+address); err != nil {
				end(err)
			}
		}()
	}
	err = runReplica(running, database.dsn, settings, p.err, ready)
	if cause := context.Cause(running); err == nil && ctx.Err() == nil {
		err = cause
	}
	return err
}

type devView struct {
	Server      string `json:"server"`
	Key         string `json:"key"`
	NamespaceID string `json:"namespace_id"`
	Queue       string `json:"queue"`
	DSN         string `json:"dsn"`
	MySQL       string `json:"mysql"`
}

// introduce makes the queue and tells what there is, once it can be used.
func (c *devCommand) introduce(ctx context.Context, p *printer, d *devDatabase, issued service.Issued, server string) error {
	key := issued.Key.Text()
	remote, err := client.New(server, key)
	if err != nil {
		return err
	}
	_, err = client.Retry(ctx, func(ctx context.Context) (*api.QueueHeaders, error) {
		return remote.API.CreateQueue(ctx, &api.CreateQueueRequest{Name: c.Queue}, api.CreateQueueParams{IdempotencyKey: api.NewOptString("orbit-dev-queue")})
	}, client.For(devQueueTime))
	if err != nil {
		return fmt.Errorf("make the queue %q: %w", c.Queue, err)
	}
	if p.format == "json" {
		return p.json(devView{server, key, issued.Key.Namespace.String(), c.Queue, d.dsn, d.version})
	}
	fmt.Fprintf(p.out, `Orbit runs at %[1]s; its API is described at %[1]s/docs.
MySQL %[2]s, %[3]s. Ctrl-C ends it all.

  export ORBIT_SERVER=%[1]s ORBIT_KEY=%[4]s

A task:

  curl $ORBIT_SERVER/v1/tasks -H "Authorization: Bearer $ORBIT_KEY" -H 'Idempotency-Key: first' \
    -H 'Content-Type: application/json' -d '{"queue": "%[5]s", "type": "hello", "payload": {"name": "world"}}'

What became of it:

  orbit task list
  orbit queue depth %[5]s
`, server, d.version, d.where, key, c.Queue)
	return nil
}

// freeAddress is the address itself, or one with another port where that one is taken.
func freeAddress(address string) string {
	listener, err := listen(context.Background(), address)
	if err == nil {
		listener.Close()
		return address
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return net.JoinHostPort(host, "0")
}

// devDatabase is a schema that only this process uses.
type devDatabase struct {
	dsn     string
	shown   string // with its password only where this process made that
	version string
	where   string
	remove  func() error
}

// database makes a schema on the server that a DSN names, else in a new container.
func (c *devCommand) database(ctx context.Context, p *printer) (_ *devDatabase, err error) {
	name := "orbit_dev_" + strings.ToLower(rand.Text()[:10])
	if c.given() {
		dsn, err := c.dsn()
		if err != nil {
			return nil, err
		}
		d, drop, err := makeDatabase(ctx, dsn, name)
		if err != nil {
			return nil, err
		}
		d.where, d.shown, d.remove = "database "+name+" on the given server", redact("dsn", d.dsn), drop
		return d, nil
	}
	image, err := c.image(ctx)
	if err != nil {
		return nil, err
	}
	p.hint("Starting MySQL from image %s …", image)
	container := strings.ReplaceAll(name, "_", "-")
	dsn, err := startContainer(ctx, image, container)
	remove := func() error { return removeContainer(container) }
	if err == nil {
		var d *devDatabase
		if d, _, err = makeDatabase(ctx, dsn, name); err == nil {
			d.where, d.shown, d.remove = "in container "+container, d.dsn, remove
			return d, nil
		}
	}
	return nil, errors.Join(err, remove())
}

// containerTime is for a server that first makes its files.
const containerTime = 2 * time.Minute

func makeDatabase(ctx context.Context, dsn, name string) (*devDatabase, func() error, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, usagef("the database's DSN: %w", err)
	}
	config.DBName, config.Logger = "", &mysql.NopLogger{} // while it waits, it would print each try
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, nil, err
	}
	server := sql.OpenDB(connector)
	defer server.Close()
	version, err := backoff.Retry(ctx, func() (version string, err error) {
		ctx, cancel := context.WithTimeout(ctx, healthTime)
		defer cancel()
		err = server.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
		if definite(err) {
			err = backoff.Permanent(err)
		}
		return version, err
	}, backoff.WithMaxElapsedTime(containerTime), backoff.WithBackOff(backoff.NewConstantBackOff(200*time.Millisecond)))
	if err != nil {
		return nil, nil, fmt.Errorf("reach MySQL: %w", err)
	}
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"); err != nil {
		return nil, nil, fmt.Errorf("make a database: %w", err)
	}
	config.DBName = name
	drop := func() error {
		server := sql.OpenDB(connector)
		defer server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), containerTime)
		defer cancel()
		_, err := server.ExecContext(ctx, "DROP DATABASE "+name)
		return err
	}
	return &devDatabase{dsn: config.FormatDSN(), version: version}, drop, nil
}

const (
	officialImage = "mysql:8.4"
	localImage    = "orbit-mysql:local"
)

// image is the one that was asked for, else one that is here, else the official one from a registry.
func (c *devCommand) image(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("docker"); err != nil {
		return "", errors.New("orbit dev needs a MySQL 8.4 or newer: set ORBIT_DSN to one, or install Docker, in which it starts its own")
	}
	if c.MySQLImage != "" {
		return c.MySQLImage, nil
	}
	for _, image := range []string{officialImage, localImage} {
		if _, err := docker(ctx, nil, "image", "inspect", image); err == nil {
			return image, nil
		}
	}
	if _, err := docker(ctx, nil, "pull", "--quiet", officialImage); err != nil {
		return "", fmt.Errorf("get a MySQL image: %w\n`make mysql-image` builds one where no registry is in reach, and ORBIT_DSN names a server that runs", err)
	}
	return officialImage, nil
}

func startContainer(ctx context.Context, image, name string) (dsn string, err error) {
	password := rand.Text()
	if _, err := docker(ctx, []string{"MYSQL_ROOT_PASSWORD=" + password}, "run", "--detach", "--name", name, "--label", "orbit=dev",
		"--env", "MYSQL_ROOT_PASSWORD", "--publish", "127.0.0.1::3306", image); err != nil {
		return "", fmt.Errorf("start MySQL: %w", err)
	}
	address, err := docker(ctx, nil, "port", name, "3306/tcp")
	if err != nil {
		return "", fmt.Errorf("find the port of MySQL: %w", err)
	}
	address, _, _ = strings.Cut(address, "\n")
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr = "root", password, "tcp", address
	return config.FormatDSN(), nil
}

func removeContainer(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := docker(ctx, nil, "rm", "--force", "--volumes", name)
	return err
}

// docker runs one command of Docker's own client and returns what it printed. Its error is what the client complained of.
func docker(ctx context.Context, env []string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "docker", args...)
	command.Env = append(os.Environ(), env...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// definite says of an error that a server gave it and will give it again.
func definite(err error) bool {
	var refused *mysql.MySQLError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Number {
	case 1044, 1045, 1049, 1130: // no rights on the schema; wrong user or password; no such schema; this host is not let in
		return true
	}
	return false
}
