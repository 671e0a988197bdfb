package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// benchLoadCommand is a process that callers of a bench run in. It reads its job from standard input, says when it is ready, begins at the
// next line it gets, and prints its result.
type benchLoadCommand struct{}

func (*benchLoadCommand) Run(ctx commandContext, p *printer) error {
	in := json.NewDecoder(os.Stdin)
	var job benchJob
	if err := in.Decode(&job); err != nil {
		return err
	}
	result, err := job.run(ctx, func() error {
		fmt.Fprintln(p.out, `"ready"`)
		var begin string
		return in.Decode(&begin)
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(p.out).Encode(result)
}

// load runs a job in this process, or spread over others, and calls begin when all callers are ready.
func (b *bench) load(ctx context.Context, job benchJob, begin func() error) (benchResult, error) {
	if b.Processes == 0 {
		return job.run(ctx, begin)
	}
	n := min(b.Processes, job.Callers)
	others := make([]*loadProcess, n)
	for i := range others {
		part := job
		part.Callers = job.Callers/n + btoi(i < job.Callers%n)
		if i%2 == 1 {
			part.Servers = slices.Clone(job.Servers)
			slices.Reverse(part.Servers)
		}
		var err error
		if others[i], err = startLoad(ctx, part); err != nil {
			return benchResult{}, err
		}
		defer others[i].end()
	}
	for _, o := range others {
		if err := o.awaitReady(); err != nil {
			return benchResult{}, err
		}
	}
	if err := begin(); err != nil {
		return benchResult{}, err
	}
	results := make([]benchResult, n)
	failed := make([]error, n)
	var group sync.WaitGroup
	for i, o := range others {
		group.Go(func() { results[i], failed[i] = o.finish() })
	}
	group.Wait()
	var sum benchResult
	for _, r := range results {
		sum.join(r)
	}
	return sum, errors.Join(failed...)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

type loadProcess struct {
	command *exec.Cmd
	in      *json.Encoder
	out     *json.Decoder
}

func startLoad(ctx context.Context, job benchJob) (*loadProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &loadProcess{command: exec.CommandContext(ctx, self, "bench-load")}
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.command.Stderr = os.Stderr
	p.in, p.out = json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	return p, p.in.Encode(job)
}

func (p *loadProcess) awaitReady() error {
	var ready string
	return p.out.Decode(&ready)
}

func (p *loadProcess) finish() (r benchResult, err error) {
	if err := p.in.Encode("begin"); err != nil {
		return r, err
	}
	return r, p.out.Decode(&r)
}

func (p *loadProcess) end() {
	_ = p.command.Process.Kill() // its result is here already
	_ = p.command.Wait()
}

// metric reads one number of a replica's /metrics.
func (r *benchReplica) metric(ctx context.Context, name string) (float64, error) {
	body, err := fetch(ctx, r.url+"/metrics")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("a replica does not tell its %s", name))
}

// replicaCPU is the seconds of CPU that the replicas have used together.
func (b *bench) replicaCPU(ctx context.Context) float64 {
	sum := 0.0
	for _, r := range b.replicas {
		cpu, err := r.metric(ctx, "process_cpu_seconds_total")
		if err != nil {
			return 0
		}
		sum += cpu
	}
	return sum
}

// databaseCPU is the processor time that the database server has used, in seconds; 0 if it is not known.
func (b *bench) databaseCPU() float64 {
	if b.DatabasePID == 0 {
		return 0
	}
	process, err := procfs.NewProc(b.DatabasePID)
	if err != nil {
		return 0
	}
	stat, err := process.Stat()
	if err != nil {
		return 0
	}
	return stat.CPUTime()
}

// profile writes a CPU profile of the replica while a measurement runs, and returns when it is written.
func (r *benchReplica) profile(ctx context.Context, file string, length time.Duration) error {
	body, err := fetch(ctx, "http://"+r.pprof+"/debug/pprof/profile?seconds="+strconv.Itoa(max(int(length.Seconds()), 1)))
	if err != nil {
		return err
	}
	defer body.Close()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, body)
	return errors.Join(err, out.Close())
}

func fetch(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return resp.Body, nil
}
