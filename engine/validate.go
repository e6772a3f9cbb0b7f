package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

const (
	// schemaBytes is the longest name that Postgres does not cut.
	schemaBytes = 63
	// payloadBytes is the most that a jsonb can hold.
	payloadBytes = 1<<28 - 1
	// outcomeBytes is what a process may have in memory at once. The messages to Postgres are smaller:
	// none holds more than 16 MiB of children or specs, unless one is larger.
	outcomeBytes = 1 << 29
	// awaitNames is how many names of 512 bytes fit in one message.
	awaitNames = 100_000
	// workerConns: while one claims or sweeps, another commits.
	workerConns = 2
	clientConns = 1
	// shortest: below it a duration is most likely a number without its unit.
	shortest = time.Millisecond
	// leaseLeast is a lease of which a heartbeat can be a third.
	leaseLeast = 3 * shortest
	// historyLeast is the shortest retention that gen_durable_roll_history takes.
	historyLeast = 24 * time.Hour
	// maxDepth of nesting is a CHECK of the table.
	maxDepth = 100
)

// faults collects what is wrong with a Config.
type faults []error

func (f *faults) add(field, format string, a ...any) {
	*f = append(*f, &ConfigError{Field: field, Err: fmt.Errorf(format, a...)})
}

// validate returns the machines without their types, the schedules as they are stored, and all that
// is wrong. c has its defaults.
func (c Config) validate() (machines []*step.Machine, schedules []declared, err error) {
	var f faults
	c.validatePool(&f)
	if err := checkName(c.Schema, schemaBytes); err != nil {
		f.add("Schema", "%w", err)
	} else if strings.HasPrefix(c.Schema, "pg_") {
		f.add("Schema", "%q: names with pg_ are Postgres' own", c.Schema)
	}
	c.validateTimes(&f)
	c.validateLimits(&f)
	if c.PartitionLock != LockAdvisory && c.PartitionLock != LockLease {
		f.add("PartitionLock", "%q, want %q or %q", string(c.PartitionLock), LockAdvisory, LockLease)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		validateQueue(&f, name, c.Queues[name])
	}
	if len(c.Queues) > 0 && len(c.Machines) == 0 {
		f.add("Machines", "none, but Queues are set: add the machines, or leave Queues out")
	}
	machines = c.machines(&f)
	schedules = c.schedules(&f, machines)
	return machines, schedules, errors.Join(f...)
}

func (c Config) validatePool(f *faults) {
	if c.Driver != nil && (c.Driver.Pool() == nil || c.Driver.Pool() != c.Pool) {
		f.add("Driver", "it is not on Pool: want one that entpgx.New made of that pool")
	}
	if c.Company != nil && c.Company.stores.Pool() != nil && c.Company.stores.Pool() != c.Pool {
		f.add("Company", "it was made of another pool: share one only between engines on the same Pool")
	}
	if c.Pool == nil {
		f.add("Pool", "nil, want a *pgxpool.Pool")
		return
	}
	need, why := clientConns, "a client"
	if len(c.Queues) > 0 {
		need, why = workerConns, "an engine with queues: it claims and commits at the same time"
	}
	if have := int(c.Pool.Config().MaxConns); have < need {
		f.add("Pool", "MaxConns is %d, at least %d for %s", have, need, why)
	}
}

func (c Config) validateTimes(f *faults) {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Lease", c.Lease},
		{"Heartbeat", c.Heartbeat},
		{"Reap", c.Reap},
		{"RetainDone", c.RetainDone},
		{"RetainFailed", c.RetainFailed},
		{"RetainHistory", c.RetainHistory},
		{"RetainCancelled", c.RetainCancelled},
		{"DrainTimeout", c.DrainTimeout},
		{"DrainGrace", c.DrainGrace},
		{"RunAheadFor", c.RunAheadFor},
	} {
		switch {
		case d.value < 0:
			f.add(d.field, "%v is negative", d.value)
		case d.value > fsm.MaxDelay:
			f.add(d.field, "%v, at most 100 years", d.value)
		case d.value < shortest:
			f.add(d.field, "%v, at least %v", d.value, shortest)
		}
	}
	if c.Lease >= shortest && c.Lease < leaseLeast {
		f.add("Lease", "%v, at least %v: a third of it is the longest Heartbeat", c.Lease, leaseLeast)
	}
	if c.Lease >= leaseLeast && c.Heartbeat > c.Lease/3 {
		f.add("Heartbeat", "%v, at most a third of Lease (%v): two beats may be lost before a claim is", c.Heartbeat, c.Lease)
	}
	if d := c.RetainHistory; d >= shortest && d < historyLeast {
		f.add("RetainHistory", "%v, at least %v: whole days are kept", d, historyLeast)
	}
	if c.History != fsm.KeepNothing && !c.History.Recorded() {
		f.add("History", "%.80q, want %q, %q or %q", string(c.History), fsm.KeepNothing, fsm.KeepTransitions, fsm.KeepStates)
	}
	if c.RunAheadSteps < 0 {
		f.add("RunAheadSteps", "%d is negative; 1 is off", c.RunAheadSteps)
	}
}

func (c Config) validateLimits(f *faults) {
	for _, n := range []struct {
		field      string
		value, max int
	}{
		{"Limits.PayloadBytes", c.Limits.PayloadBytes, payloadBytes},
		{"Limits.OutcomeBytes", c.Limits.OutcomeBytes, outcomeBytes},
		{"Limits.AwaitNames", c.Limits.AwaitNames, awaitNames},
		{"Limits.Inbox", c.Limits.Inbox, 0},
		{"Limits.AwaitedBytes", c.Limits.AwaitedBytes, 0},
		{"Limits.Children", c.Limits.Children, 0},
		{"Limits.ChildrenBytes", c.Limits.ChildrenBytes, 0},
		{"Limits.Depth", c.Limits.Depth, maxDepth},
	} {
		switch {
		case n.value < 0:
			f.add(n.field, "%d is negative", n.value)
		case n.max > 0 && n.value > n.max:
			f.add(n.field, "%d, at most %d", n.value, n.max)
		}
	}
}

func validateQueue(f *faults, name string, q Queue) {
	field := fmt.Sprintf("Queues[%.80s]", name)
	if err := checkName(name, fsm.MaxNameBytes); err != nil {
		f.add(field, "the name: %w", err)
	}
	if q.Concurrency < 0 {
		f.add(field+".Concurrency", "%d is negative", q.Concurrency)
	}
	if q.Buffer < 0 {
		f.add(field+".Buffer", "%d is negative; 0 is adaptive", q.Buffer)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{".PollMin", q.PollMin}, {".PollMax", q.PollMax}} {
		switch {
		case d.value < 0:
			f.add(field+d.field, "%v is negative", d.value)
		case d.value < shortest:
			f.add(field+d.field, "%v, at least %v", d.value, shortest)
		}
	}
	if q.PollMax >= shortest && q.PollMin > q.PollMax {
		f.add(field+".PollMin", "%v, at most PollMax (%v)", q.PollMin, q.PollMax)
	}
}

// machines erases the definitions; their own faults become the Config's.
func (c Config) machines(f *faults) []*step.Machine {
	type identity struct {
		name    string
		version int
	}
	machines := make([]*step.Machine, 0, len(c.Machines))
	first := map[identity]int{}
	for i, definition := range c.Machines {
		field := fmt.Sprintf("Machines[%d]", i)
		if definition == nil {
			f.add(field, "nil, want a definition, as Define or Job returns it")
			continue
		}
		m := hidden.Machine(definition)
		if m == nil {
			f.add(field, "nil, want a definition, as Define or Job returns it")
			continue
		}
		wrong := m.Faults
		if m.TypeFaults != nil {
			wrong = slices.Concat(wrong, m.TypeFaults(c.Codec))
		}
		for _, fault := range wrong {
			at := field
			if wrong, ok := errors.AsType[*fsm.DefinitionError](fault); ok {
				at += "." + wrong.Field
			}
			f.add(at, "%w", fault)
		}
		m.History = cmp.Or(m.History, c.History)
		id := identity{m.Name, m.Version}
		if j, taken := first[id]; taken {
			f.add(field, "machine %.80q version %d is Machines[%d] already: leave one out, or declare another fsm.Version", m.Name, m.Version, j)
			continue
		}
		first[id] = i
		machines = append(machines, m)
	}
	return machines
}

// registered returns a function that finds one of the machines, or nil.
func registered(machines []*step.Machine) func(name string, version int) *step.Machine {
	return func(name string, version int) *step.Machine {
		for _, m := range machines {
			if m.Name == name && m.Version == version {
				return m
			}
		}
		return nil
	}
}

func checkName(name string, most int) error {
	switch {
	case name == "":
		return fmt.Errorf("empty, want 1 to %d bytes", most)
	case len(name) > most:
		return fmt.Errorf("%d bytes, at most %d", len(name), most)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("%.80q is not a text that Postgres takes", name)
	}
	return nil
}
