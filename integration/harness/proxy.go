package harness

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// Proxy stands between a replica and its database, and can take the database away from it. One test uses it, from its own goroutine.
type Proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	away  bool
	conns map[net.Conn]struct{}
	ended sync.WaitGroup

	silence sync.RWMutex // held exclusively while nothing passes
	silent  bool
}

// NewProxy starts a proxy to the server of a DSN, which ends with t.
func NewProxy(t testing.TB, dsn string) *Proxy {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: config.Addr, conns: map[net.Conn]struct{}{}}
	p.ended.Go(p.serve)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.Away()
		p.Speak()
		p.ended.Wait()
	})
	return p
}

// Through is a DSN that leads through the proxy, for Options.DSN.
func (p *Proxy) Through(dsn string) string {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		panic(err) // it parsed when the proxy was made
	}
	config.Addr = p.listener.Addr().String()
	return config.FormatDSN()
}

// Away cuts every connection and ends new ones at once, until Back.
func (p *Proxy) Away() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Back lets connections through again.
func (p *Proxy) Back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}

// Hush holds back everything that is sent, in both directions and on every connection, until Speak: nobody is told that anything is wrong.
func (p *Proxy) Hush() {
	if !p.silent {
		p.silence.Lock()
		p.silent = true
	}
}

// Speak sends what was held back.
func (p *Proxy) Speak() {
	if p.silent {
		p.silent = false
		p.silence.Unlock()
	}
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.ended.Go(func() { p.join(client) })
	}
}

func (p *Proxy) join(client net.Conn) {
	server, err := (&net.Dialer{}).Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	if !p.keep(client, server) {
		_ = client.Close()
		_ = server.Close()
		return
	}
	defer p.forget(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client) })
	both.Go(func() { p.pump(client, server) })
	both.Wait()
}

// pump copies until either end is closed, and then closes both.
func (p *Proxy) pump(to, from net.Conn) {
	_, _ = io.Copy(p.passing(to), from) // how a connection ended is for its two ends
	_ = to.Close()
	_ = from.Close()
}

// passing is a connection that is written to only while the proxy is not hushed.
func (p *Proxy) passing(to net.Conn) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		p.silence.RLock()
		defer p.silence.RUnlock()
		return to.Write(b)
	})
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// keep answers false while the database is away.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return false
	}
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}
