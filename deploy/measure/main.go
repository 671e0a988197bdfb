// Command measure asks a MySQL server what parts of Orbit's schema cost it. Each question is answered by running Orbit's own statements
// on copies of the schema that differ in one thing, in turns, and comparing what the server spent:
//
//	go run ./deploy/measure -dsn 'root:password@tcp(127.0.0.1:3306)/' -only indexes
//
// The measure is processor time of mysqld, read from /proc of this machine, which other processes do not disturb as they do the clock; so
// the server must run on this machine and have nothing else to do. Databases named measure_… are made and dropped.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// question is one thing to find out. It writes a Markdown table.
type question struct {
	name, about string
	ask         func(context.Context, *server, options) error
}

var questions = []question{
	{"indexes", "the secondary indexes that each task's life writes", askIndexes},
	{"foreign-keys", "foreign keys on the rows of a task's life, there and not", askForeignKeys},
	{"keys", "the order of the idempotency keys", askKeys},
	{"ids", "ids ordered by time and random ids", askIDs},
	{"ready", "a table of ready tasks, or an index over all tasks", askReady},
	{"triggers", "triggers that refuse updates, and triggers on hot tables", askTriggers},
}

// options are what the questions have in common.
type options struct {
	rounds, lives int
	rows          int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var names []string
	for _, q := range questions {
		names = append(names, q.name)
	}
	var o options
	dsn := flag.String("dsn", "root:orbit@tcp(127.0.0.1:3306)/", "an account that may create databases, without a database")
	pid := flag.Int("pid", 0, "process of mysqld on this machine; 0 finds it if there is only one")
	only := flag.String("only", "", "questions, by comma: "+strings.Join(names, ", ")+"; empty asks all")
	flag.IntVar(&o.rounds, "rounds", 200, "times that each variant has its turn")
	flag.IntVar(&o.lives, "lives", 100, "lives of tasks in a turn")
	flag.IntVar(&o.rows, "rows", 5_000_000, "rows of the largest table, for questions of size")
	flag.Parse()
	s, err := connect(ctx, *dsn, *pid)
	if err != nil {
		return err
	}
	defer s.close()
	for _, q := range questions {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), q.name) {
			continue
		}
		fmt.Printf("\n## %s\n\n%s, %s\n\n", q.name, q.about, s.version)
		if err := q.ask(ctx, s, o); err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
	}
	return nil
}
