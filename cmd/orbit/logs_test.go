package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// gate is a reader of logs that reads nothing until it is opened.
type gate struct {
	open    chan struct{}
	entered chan struct{}
	got     bytes.Buffer
}

func (g *gate) Write(line []byte) (int, error) {
	select {
	case g.entered <- struct{}{}:
	default:
	}
	<-g.open
	return g.got.Write(line)
}

func TestLogsNeverBlockAndCountWhatIsLost(t *testing.T) {
	g := &gate{open: make(chan struct{}), entered: make(chan struct{}, 1)}
	q := newLogQueue(g)
	logger := newLogger(q, "json", "info")
	logger.Info("first")
	<-g.entered // from here on one line is with the reader and the queue is empty
	const more = 100
	for range logQueueLength + more {
		logger.Info("line", "n", 1)
	}
	if got := q.dropped.Load(); got != more {
		t.Errorf("%d lines dropped, want %d", got, more)
	}
	close(g.open)
	q.Close()
	if got := strings.Count(g.got.String(), "\n"); got != logQueueLength+1 {
		t.Errorf("%d lines written, want %d", got, logQueueLength+1)
	}
	logger.Info("after the end")
	q.Close()
	if got := q.dropped.Load(); got != more+1 {
		t.Errorf("a line after the end was not counted: %d", got)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLogsThatCannotBeWrittenAreCounted(t *testing.T) {
	q := newLogQueue(broken{})
	newLogger(q, "json", "info").Info("line")
	q.Close()
	if got := q.dropped.Load(); got != 1 {
		t.Errorf("%d lines dropped, want 1", got)
	}
}

func TestLogLevelAndForm(t *testing.T) {
	var out bytes.Buffer
	logger := newLogger(&out, "json", "warn")
	logger.Info("quiet")
	logger.Warn("loud", "task", "x")
	var entry map[string]any
	if err := json.Unmarshal(out.Bytes(), &entry); err != nil || entry["msg"] != "loud" || entry["task"] != "x" {
		t.Errorf("%v: %s", err, out.String())
	}
	out.Reset()
	newLogger(&out, "text", "debug").Debug("quiet")
	if !strings.Contains(out.String(), "msg=quiet") {
		t.Errorf("got %s", out.String())
	}
}
