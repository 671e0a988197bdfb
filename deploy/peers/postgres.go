package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// postgres is a server of this run's own, on loopback, with a new cluster whose settings are the defaults.
type postgres struct {
	server *exec.Cmd
	log    bytes.Buffer
	dir    string
	url    string

	databases int // made so far
}

// startPostgres makes the cluster in a folder of its own. The server refuses to run as root; root runs it as the user postgres.
func startPostgres(ctx context.Context) (_ *postgres, err error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	p := &postgres{}
	// Not the folder for temporary files: on some systems that is memory, on which nothing is durable.
	if p.dir, err = os.MkdirTemp("/var/tmp", "orbit-peers-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	as, err := p.otherThanRoot()
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	data, passwordFile := filepath.Join(p.dir, "data"), filepath.Join(p.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(password), 0o644); err != nil { // in a folder that only its user may enter
		return nil, err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", "postgres", "--pwfile", passwordFile, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C")
	initdb.SysProcAttr, initdb.Dir = as, p.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	p.url = fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, port)
	p.server = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port), "-c", "unix_socket_directories=") //nolint:noctx // stop ends it, in order
	p.server.SysProcAttr, p.server.Dir = as, p.dir
	p.server.Stdout, p.server.Stderr = &p.log, &p.log
	if err := p.server.Start(); err != nil {
		p.server = nil
		return nil, err
	}
	return p, p.awaitReady(ctx)
}

// postgresBin is the folder of the newest server's programs: Debian has them outside of PATH.
func postgresBin() (string, error) {
	found, newest := "", 0
	names, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		dir := filepath.Dir(name)
		if version, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil && version > newest {
			found, newest = dir, version
		}
	}
	if found != "" {
		return found, nil
	}
	name, err := exec.LookPath("postgres")
	return filepath.Dir(name), err
}

// otherThanRoot gives the folder to the user that the server is to run as.
func (p *postgres) otherThanRoot() (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(p.dir, int(uid), int(gid))
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (p *postgres) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		pool, err := p.pool(ctx, "postgres", 1)
		if err == nil {
			pool.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not become ready: %w\n%s", err, p.log.String())
		}
	}
}

// stop ends the server, which writes out what it has first, and removes its folder.
func (p *postgres) stop() (err error) {
	if p.server != nil {
		err = errors.Join(p.server.Process.Signal(syscall.SIGINT), p.server.Wait())
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *postgres) pool(ctx context.Context, database string, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database = database
	config.MaxConns = int32(connections) //nolint:gosec // a few dozen
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// makeDatabase names a new one. All go with the cluster.
func (p *postgres) makeDatabase(ctx context.Context) (name string, err error) {
	pool, err := p.pool(ctx, "postgres", 1)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	p.databases++
	name = fmt.Sprintf("peers_%d", p.databases)
	_, err = pool.Exec(ctx, "CREATE DATABASE "+name)
	return name, err
}

// settings are those that bear on the figures.
func (p *postgres) settings(ctx context.Context) (text string, err error) {
	pool, err := p.pool(ctx, "postgres", 1)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size"} {
		var value string
		if err := pool.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return "", err
		}
		text += ", " + name + " " + value
	}
	return strings.TrimPrefix(text, ", "), nil
}

// floorConnections is at how many connections F is measured on MySQL.
const floorConnections = 16

// floor is what F is on MySQL: rows of 100 bytes with a key of 16 that is ordered by time, each committed by itself, a second.
func (p *postgres) floor(ctx context.Context, length time.Duration) (float64, error) {
	pool, err := p.pool(ctx, "postgres", floorConnections)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "DROP TABLE IF EXISTS bench_floor; CREATE TABLE bench_floor (id uuid PRIMARY KEY, body bytea NOT NULL)"); err != nil {
		return 0, err
	}
	body := []byte(strings.Repeat("x", 100))
	var rows atomic.Int64
	from := time.Now()
	var group errgroup.Group
	for range floorConnections {
		group.Go(func() error {
			for time.Since(from) < length {
				if _, err := pool.Exec(ctx, "INSERT INTO bench_floor (id, body) VALUES ($1, $2)", timeOrdered(), body); err != nil {
					return err
				}
				rows.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return float64(rows.Load()) / time.Since(from).Seconds(), nil
}

// timeOrdered is 32 hexadecimal digits.
func timeOrdered() string {
	var b [16]byte
	rand.Read(b[:])
	ms := time.Now().UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	return hex.EncodeToString(b[:])
}
