// Command orbit is Orbit's one program: the service, its migrations, the commands for operators on the host and a client of
// the API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

type commands struct {
	Config configFlag   `name:"config" type:"path" env:"ORBIT_CONFIG" placeholder:"FILE" help:"YAML file of settings; flags and environment win over it."`
	Output outputFormat `short:"o" enum:"table,json" default:"table" help:"Form of what is printed: ${enum}."`

	Serve    serveCommand    `cmd:"" help:"Run the service."`
	Dev      devCommand      `cmd:"" help:"Run one service on a throw-away database, for trying things."`
	Migrate  migrateCommand  `cmd:"" help:"Bring the database to this program's version, or show where it is."`
	Admin    adminCommand    `cmd:"" help:"Make tenants and credentials, on the host, with the database's DSN."`
	Verify   verifyCommand   `cmd:"" help:"Check the invariants of everything stored."`
	Task     taskCommand     `cmd:"" help:"Submit, read, cancel and retry tasks."`
	Queue    queueCommand    `cmd:"" help:"Make, read, change and pause queues."`
	Schedule scheduleCommand `cmd:"" help:"Make, read, change, trigger and pause schedules."`
	Demo     demoCommand     `cmd:"" help:"Put real files through it, kill a worker and the server in the middle, and compare every result."`
	Bench    benchCommand    `cmd:"" help:"Measure what a database server carries through Orbit, on a database of its own."`

	Settings   settingsCommand           `cmd:"" name:"config" help:"Show the settings in effect."`
	DemoWorker demoWorkerCommand         `cmd:"" hidden:""`
	BenchLoad  benchLoadCommand          `cmd:"" hidden:""`
	Version    versionCommand            `cmd:"" help:"Print the program's version."`
	Completion kongcompletion.Completion `cmd:"" help:"Print how to complete commands in bash, zsh or fish."`
}

const (
	exitFailed = 1 // the command was understood and did not succeed
	exitUsage  = 2 // the command line or the settings are wrong
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process: it returns the exit code.
func run(args []string, stdout, stderr io.Writer) (code int) {
	// The first signal asks the command to end in good order; after it, a second one kills at once.
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	context.AfterFunc(signalled, func() { stop(); end() }) // in this order: who sees the end may send the second signal

	dropEmptyVariables()
	var cli commands
	exited := -1
	parser, err := newParser(&cli, stdout, stderr, func(code int) { exited = code; panic(exitNow{}) })
	if err != nil {
		fmt.Fprintln(stderr, "orbit:", err)
		return exitFailed
	}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(exitNow); !ok {
				panic(p)
			}
			code = exited
		}
	}()
	kongcompletion.Register(parser)
	command, err := parser.Parse(args)
	if err == nil {
		err = checkEnvironment(parser.Model, os.Environ())
	}
	if err != nil {
		fmt.Fprintln(stderr, "orbit:", err)
		return exitUsage
	}
	err = command.Run(&printer{format: cli.Output, out: stdout, err: stderr}, commandContext{ctx})
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "orbit:", strings.TrimPrefix(err.Error(), "orbit: ")) // which the client of the API says too
	if unreachable(err) {
		fmt.Fprintln(stderr, "Is Orbit running there? --server or ORBIT_SERVER says where it is.")
	}
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// exitNow unwinds out of kong where it would end the process, as after --help.
type exitNow struct{}

// commandContext ends with the first SIGINT or SIGTERM. It is a type of its own because kong hands values to Run by type.
type commandContext struct{ context.Context }

// usageError is a command line that parses and yet makes no sense.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func newParser(cli *commands, stdout, stderr io.Writer, exit func(int)) (*kong.Kong, error) {
	file := &settingsFile{config: &cli.Config}
	return kong.New(cli,
		kong.Name("orbit"),
		kong.Description("Durable execution on MySQL."),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.Resolvers(file),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Bind(file),
	)
}
