package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// orbitBench is what `orbit bench` prints of what it found.
type orbitBench struct {
	Server  [][2]string   `json:"server"`
	Figures []orbitFigure `json:"figures"`
}

type orbitFigure struct {
	Suite   string  `json:"suite"`
	Figure  string  `json:"figure"`
	Callers int     `json:"callers"`
	Batch   int     `json:"batch"`
	Value   float64 `json:"value"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

// benchOrbit measures Orbit, and F beside it, with the command that everybody has.
func benchOrbit(ctx context.Context, program, dsn, out string, length time.Duration) (found orbitBench, err error) {
	command := exec.CommandContext(ctx, program, "bench", "--dsn", dsn, "--suite", "life,latency", "--seconds", strconv.FormatFloat(length.Seconds(), 'f', -1, 64),
		"--callers", fmt.Sprintf("%d,%d", orbitBatchCallers, singleCallers), "--batch", fmt.Sprintf("1,%d", batch), "--rate", strconv.Itoa(latencyRate), "--out", out, "-o", "json")
	// Killed, it would leave its replicas.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	var reply, log bytes.Buffer
	command.Stdout, command.Stderr = &reply, &log
	if err := command.Run(); err != nil {
		return found, fmt.Errorf("%s: %w\n%s", strings.Join(command.Args[:2], " "), err, log.String())
	}
	return found, json.Unmarshal(reply.Bytes(), &found)
}

// figure finds one; callers and batch are 0 where the figure has none.
func (b orbitBench) figure(suite, name string, callers, batch int) (orbitFigure, error) {
	for _, f := range b.Figures {
		if f.Suite == suite && f.Figure == name && f.Callers == callers && f.Batch == batch {
			return f, nil
		}
	}
	return orbitFigure{}, fmt.Errorf("orbit bench has no figure %q in its suite %s with %d callers and %d tasks a call", name, suite, callers, batch)
}
