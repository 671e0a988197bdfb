// Command peers measures Orbit beside other queues, on one machine in one run: River on PostgreSQL, and a ready table in the manner of Solid Queue on
// the MySQL server that Orbit uses. It writes a table and a picture, and puts both into the page about performance.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/orbit-run/orbit/deploy/peers/internal/report"
)

// What every system is given.
const (
	batch             = 100 // tasks in a call
	orbitBatchCallers = 64
	singleCallers     = 256
	workers           = 100
	latencyRate       = 50 // a second

	// Tasks of a peer under way at most: enough for workers never to wait for inserters.
	riverUnderWay = orbitBatchCallers * batch // as many as Orbit has with batches
	readyUnderWay = 20 * workers              // it takes long to drain more
)

type options struct {
	dsn, route      string
	orbit, revision string
	out, page       string
	rounds          int
	seconds         float64
	tune            tuning
}

// tuning is what was chosen for the peers by trying: the values with which they were fastest.
type tuning struct {
	riverInserters, riverConnections int
	readyInserters, readyProcesses   int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.dsn, "dsn", "", "`DSN` of the MySQL server, without a database")
	flag.StringVar(&o.route, "route", "", "how the DSN reaches the server, for the report")
	flag.StringVar(&o.orbit, "orbit", "bin/orbit", "the `program` to measure")
	flag.StringVar(&o.revision, "revision", "unknown", "the commit that it was built from, for the report")
	flag.StringVar(&o.out, "out", ".run/peers", "`prefix` of the files with the figures and the picture")
	flag.StringVar(&o.page, "page", "", "`page` whose section is written anew; the picture goes to its folder assets")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each system is measured")
	flag.Float64Var(&o.seconds, "seconds", 3, "length of one measurement")
	flag.IntVar(&o.tune.riverInserters, "river-inserters", 4, "callers that insert batches into River")
	flag.IntVar(&o.tune.riverConnections, "river-connections", 20, "connections that River has to PostgreSQL")
	flag.IntVar(&o.tune.readyInserters, "ready-inserters", 4, "callers that insert batches into the ready table")
	flag.IntVar(&o.tune.readyProcesses, "ready-processes", 1, "processes that share the 100 workers of the ready table")
	flag.Parse()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // nothing is left to be undone
	}
}

func (o *options) length() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

func (o *options) run(ctx context.Context) (err error) {
	if o.dsn == "" || o.rounds < 1 || o.seconds <= 0 || workers%o.tune.readyProcesses != 0 {
		return errors.New("a DSN is needed, at least one round, more than no seconds, and as many workers in each process")
	}
	c := &comparison{options: o}
	defer func() { err = errors.Join(err, c.close(context.WithoutCancel(ctx))) }()
	if err := c.open(ctx); err != nil {
		return err
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		if err := c.round(ctx); err != nil {
			return err
		}
	}
	found, err := c.report(ctx)
	if err != nil {
		return err
	}
	return o.write(found)
}

func (o *options) write(r report.Report) error {
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	files := map[string]func(io.Writer) error{o.out + ".csv": r.WriteCSV, o.out + ".svg": r.WriteSVG}
	if o.page != "" {
		files[filepath.Join(filepath.Dir(o.page), "assets", pictureName)] = r.WriteSVG
	}
	for name, content := range files {
		if err := writeFile(name, content); err != nil {
			return err
		}
	}
	text := r.Markdown("assets/" + pictureName)
	fmt.Print(text)
	if o.page == "" {
		return nil
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		return err
	}
	replaced, err := report.ReplaceSection(string(page), text)
	if err != nil {
		return fmt.Errorf("%s: %w", o.page, err)
	}
	return os.WriteFile(o.page, []byte(replaced), 0o644)
}

const pictureName = "peers.svg"

func writeFile(name string, content func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(content(file), file.Close())
}

// version is that of a module in this program.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, d := range info.Deps {
			if d.Path == module {
				return d.Version
			}
		}
	}
	return "of unknown version"
}

// machine tells what all systems shared.
func machine() [][2]string {
	rows := [][2]string{{"processors", fmt.Sprintf("%d", runtime.NumCPU())}}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				rows[0][1] += ", " + strings.TrimSpace(model)
				break
			}
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		rows = append(rows, [2]string{"load average before", strings.Join(strings.Fields(string(load))[:3], " ")})
	}
	return append(rows, [2]string{"Go", strings.TrimPrefix(runtime.Version(), "go")})
}
