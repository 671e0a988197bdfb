package main

import (
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
)

// logQueue lets no reader of the logs block the work: lines wait in a bounded queue, and those that find it full are dropped and
// counted.
type logQueue struct {
	lines   chan []byte
	ended   chan struct{}
	dropped atomic.Int64
	closing sync.RWMutex
	closed  bool
}

const logQueueLength = 4096

func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{lines: make(chan []byte, logQueueLength), ended: make(chan struct{})}
	go func() {
		defer close(q.ended)
		for line := range q.lines {
			if _, err := out.Write(line); err != nil {
				q.dropped.Add(1)
			}
		}
	}()
	return q
}

func (q *logQueue) Write(line []byte) (int, error) {
	q.closing.RLock()
	defer q.closing.RUnlock()
	if q.closed {
		q.dropped.Add(1)
		return len(line), nil
	}
	select {
	case q.lines <- append([]byte(nil), line...):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

// Close writes what waits. Lines that come later are dropped.
func (q *logQueue) Close() {
	q.closing.Lock()
	closed := q.closed
	q.closed = true
	q.closing.Unlock()
	if !closed {
		close(q.lines)
	}
	<-q.ended
}

func newLogger(out io.Writer, format, level string) *slog.Logger {
	options := &slog.HandlerOptions{}
	var parsed slog.Level
	if parsed.UnmarshalText([]byte(level)) == nil {
		options.Level = parsed
	}
	if format == "text" {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}
