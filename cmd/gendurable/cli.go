package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"
)

// commands is the whole command line: kong reads the tags.
type commands struct {
	Options options `embed:""`

	Migrate    migrateCommands  `cmd:"" help:"Migrate the schema, and show its version."`
	Instance   instanceCommands `cmd:"" help:"List, explain and change instances."`
	Queue      queueCommands    `cmd:"" help:"List, pause and resume queues."`
	Gate       gateCommands     `cmd:"" help:"List, set and drop gates, which bound how many instances execute at a time."`
	Schedule   scheduleCommands `cmd:"" help:"List, pause, resume, run and delete schedules."`
	Window     windowCommands   `cmd:"" help:"List the windows of inserts that are throttled, debounced, or once per period."`
	Worker     workerCommands   `cmd:"" help:"List the processes that work."`
	Machine    machineCommands  `cmd:"" help:"List and draw the machines."`
	Cluster    clusterCommands  `cmd:"" help:"Make schemas the places of a cluster, show how they stand, and check them."`
	Overview   overviewCommand  `cmd:"" help:"Show queues, workers, failures, gates and warnings at a glance."`
	Failures   failuresCommand  `cmd:"" help:"Group the newest failures by machine, step and error, the most frequent first."`
	Audit      auditCommand     `cmd:"" help:"List what operators' verbs have changed, newest first."`
	Doctor     doctorCommand    `cmd:"" help:"Check the server, the schema and the work; say what is wrong, and what to do."`
	Vet        vetCommand       `cmd:"" help:"Look for mistakes in the steps of Go programs; exit code 5 if there are any."`
	New        newCommand       `cmd:"" help:"Write a machine that takes the place of a status column of an ent schema, with its tests."`
	MCP        mcpCommand       `cmd:"" help:"Offer the reading commands to agents as tools, over standard input and output (Model Context Protocol)." name:"mcp"`
	Top        topCommand       `cmd:"" help:"Watch queues, workers and rates."`
	Dev        devCommand       `cmd:"" help:"Run a migrated Postgres from this machine's binaries until ctrl-c; its data stays."`
	UI         uiCommand        `cmd:"" help:"Serve the dashboard to this machine until ctrl-c."                                                       name:"ui"`
	Bench      benchCommand     `cmd:"" help:"Measure jobs per second and latencies, in a schema of its own."`
	Completion completion       `cmd:"" help:"Print the completion script of a shell."`
	Complete   completeCommand  `cmd:"" help:"Print the candidates for the last of some words."                                                        hidden:""`
	Version    versionCommand   `cmd:"" help:"Print the version of this program and of its schema."`
}

// options are the flags of all commands.
type options struct {
	DatabaseURL string        `env:"DATABASE_URL"                                                 help:"The database, as a URL or as key=value."                                                                                                                                                          name:"database-url"         placeholder:"URL"`
	Schema      string        `default:"gendurable"                                               env:"GENDURABLE_SCHEMA"                                                                                                                                                                                 help:"The engine's schema."`
	JSON        bool          `help:"Write JSON, errors too."                                     name:"json"`
	Actor       string        `env:"GENDURABLE_ACTOR"                                             help:"Who asks, for the audit of what commands change; unless given, the user of this system."                                                                                                          placeholder:"NAME"`
	Reason      string        `help:"Why, for the audit; of instance cancel also the last error." placeholder:"TEXT"`
	Within      []string      `env:"GENDURABLE_WITHIN"                                            help:"Only instances within these bounds exist: queue=NAME, machine=NAME, label=NAME=VALUE, separated by commas or repeated. Of several queues or machines an instance has one, of several labels all." placeholder:"BOUND"         sep:","`
	Timeout     time.Duration `default:"30s"                                                      help:"How long a command may take, unless it waits, watches, measures, migrates or changes many instances; 0: no limit."`
}

// app is what a command works with. A command that also takes a *pgxpool.Pool or a *database gets
// it connected; run closes it.
type app struct {
	options
	console *console
	model   *kong.Application
	pools   []*pgxpool.Pool
	place   *standpoint // where the command works, in place of --database-url
}

func (a *app) close() {
	for _, pool := range a.pools {
		pool.Close()
	}
}

const description = "Operate gendurable, durable state machines on Postgres."

// newParser builds the command line. It sets helped if help was printed; there is nothing else to
// do then.
func newParser(all *commands, c *console, helped *bool) (*kong.Kong, error) {
	return kong.New(all,
		kong.Name("gendurable"), kong.Description(description), kong.Writers(c.out, c.errs),
		kong.Exit(func(int) { *helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
	)
}

// run is the program: it returns the code to exit with.
func run(ctx context.Context, args []string, c *console) exitCode {
	var all commands
	helped := false
	parser, err := newParser(&all, c, &helped)
	if err != nil {
		return c.report(err, false)
	}
	parsed, err := parser.Parse(args)
	if helped {
		return codeDone
	}
	if err != nil {
		return c.report(usagef("%w; see %s --help", err, misused(err)), slices.Contains(args, "--json"))
	}
	a := &app{options: all.Options, console: c, model: parser.Model}
	defer a.close()
	return c.report(a.execute(ctx, parsed), a.JSON)
}

// execute runs the command that was parsed.
func (a *app) execute(ctx context.Context, parsed *kong.Context) error {
	if err := a.bind(parsed.Selected()); err != nil {
		return err
	}
	limited := ctx
	if a.Timeout > 0 && !lasts(parsed) {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, a.Timeout)
		defer cancel()
	}
	limited = a.asking(limited)
	parsed.BindTo(limited, (*context.Context)(nil))
	for _, provider := range []any{
		func() (*pgxpool.Pool, error) { return a.connect(limited) },
		func() (*database, error) { return a.open(limited) },
	} {
		if err := parsed.BindToProvider(provider); err != nil {
			return err
		}
	}
	err := parsed.Run(a)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = &exitError{codeInterrupted, fmt.Errorf("interrupted: %w", err)}
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		err = &exitError{codeTimeout, fmt.Errorf("not done within %v, which --timeout changes: %w", a.Timeout, err)}
	}
	return err
}

// misused returns the command that a wrong command line is about.
func misused(err error) string {
	if wrong, ok := errors.AsType[*kong.ParseError](err); ok && wrong.Context != nil {
		if node := wrong.Context.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return "gendurable"
}

// lasting is a command to which --timeout does not apply.
type lasting interface{ lasts() bool }

func lasts(parsed *kong.Context) bool {
	node := parsed.Selected()
	if node == nil || !node.Target.CanAddr() {
		return false
	}
	command, ok := reflect.TypeAssert[lasting](node.Target.Addr())
	return ok && command.lasts()
}
