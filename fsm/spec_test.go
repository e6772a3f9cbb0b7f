package fsm_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

func TestSpec(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[cart, string]("m", fsm.Version(2), fsm.Queue("q"), fsm.Initial("go"), fsm.Deadline(time.Hour))
	at := time.Now().Add(time.Hour)
	full := m.New(cart{ID: 1}).Key("k").Scope(fsm.ScopeLiveOrFailed).PartitionKey("p").Queue("other").Priority(-32768).At(at).Step("s").
		Deadline(2*time.Hour).Label("customer", "7").Label("region", "eu").Label("customer", "8")
	require.Equal(t, fsm.Options{Machine: "m", Version: 2, Step: "s", Queue: "other", Priority: -32768, Key: "k", Scope: fsm.ScopeLiveOrFailed,
		PartitionKey: "p", At: at, Deadline: 2 * time.Hour, Labels: map[string]string{"customer": "8", "region": "eu"}}, full.Options())
	require.Equal(t, cart{ID: 1}, full.State())

	got, err := hidden.Spec(full, nil)
	require.NoError(t, err)
	require.NotZero(t, got.UID)
	require.Equal(t, &step.Spec{UID: got.UID, Machine: "m", Version: 2, Step: "s", Queue: "other", Priority: -32768, State: json.RawMessage(`{"id":1}`),
		Key: "k", Scope: step.ScopeLiveOrFailed, PartitionKey: "p", At: at, Deadline: 2 * time.Hour,
		Labels: json.RawMessage(`{"customer":"8","region":"eu"}`)}, got)

	plain, err := hidden.Spec(m.New(cart{}).After(time.Minute), nil)
	require.NoError(t, err)
	require.Equal(t, &step.Spec{UID: plain.UID, Machine: "m", Version: 2, Step: "go", Queue: "q", State: json.RawMessage(`{"id":0}`), Delay: time.Minute,
		Deadline: time.Hour}, plain)
}

func TestSpecRules(t *testing.T) {
	t.Parallel()
	spec := cartMachine.New(cart{})
	for want, s := range map[step.Window]fsm.Spec{
		{Kind: step.WindowThrottle, Key: "w", For: time.Millisecond}:           spec.Throttle("x", 0).Throttle("w", time.Millisecond),
		{Kind: step.WindowOnce, Key: "w", For: fsm.MaxDelay}:                   spec.OncePer("w", fsm.MaxDelay),
		{Kind: step.WindowDebounce, Key: "w", For: time.Hour, Most: time.Hour}: spec.Debounce("w", time.Hour, time.Hour),
		{Kind: step.WindowDebounce, Key: "w", For: time.Second, Most: 0}:       spec.Key("k").Scope(fsm.ScopeNone).Debounce("w", time.Second, 0),
		{Kind: step.WindowThrottle, Key: "w", For: time.Second, Most: 0}:       spec.Key("k").Throttle("w", time.Second),
		{}: spec.Key("k").OnConflict(fsm.ConflictRefuse),
	} {
		got, err := hidden.Spec(s, nil)
		require.NoError(t, err)
		require.Equal(t, want, got.Window)
		require.Equal(t, want.Kind != "", got.Ruled())
		if want.Kind == step.WindowDebounce {
			require.Equal(t, want.For, got.Delay)
		}
	}
	got, err := hidden.Spec(spec.Key("k").OnConflict(fsm.ConflictNewest), nil)
	require.NoError(t, err)
	require.Equal(t, step.ConflictNewest, got.Conflict)
	require.True(t, got.Ruled())
}

// Each insert makes a separate instance, also two inserts of one spec.
func TestSpecUIDs(t *testing.T) {
	t.Parallel()
	spec := cartMachine.New(cart{})
	a, err := hidden.Spec(spec, nil)
	require.NoError(t, err)
	b, err := hidden.Spec(spec, nil)
	require.NoError(t, err)
	require.NotEqual(t, a.UID, b.UID)
	require.Equal(t, byte(4), a.UID[6]>>4, "a random UUID")
}

func TestSpecMethodsCopy(t *testing.T) {
	t.Parallel()
	spec := cartMachine.New(cart{}).Label("a", "b")
	before := spec.Options()
	spec.Key("k").PartitionKey("").Queue("").Priority(1e6).After(-1).At(time.Now()).Step("").KeyFromState().Scope(9).Deadline(-1).Label("a", "c").Label("d", "")
	spec.Options().Labels["a"] = "d"
	require.Equal(t, before, spec.Options())
	_, err := hidden.Spec(spec, nil)
	require.NoError(t, err)
}

func labelled(spec fsm.Spec, n int) fsm.Spec {
	for i := range n {
		spec = spec.Label(fmt.Sprint("label ", i), "x")
	}
	return spec
}

// Values at the bounds are stored.
func TestSpecAtTheBounds(t *testing.T) {
	t.Parallel()
	_, err := hidden.Spec(labelled(cartMachine.New(cart{}), 15).Label(long(64), long(256)).Deadline(fsm.MaxDelay), nil)
	require.NoError(t, err)
	none, err := hidden.Spec(fsm.Declare[cart, string]("m", fsm.Deadline(time.Minute)).New(cart{}).Deadline(0), nil)
	require.NoError(t, err)
	require.Zero(t, none.Deadline)
	require.Nil(t, none.Labels)
}

func TestSpecFaults(t *testing.T) {
	t.Parallel()
	good := cartMachine.New(cart{})
	unkeyed := cartMachine.New(cart{Extra: math.NaN()})
	for name, c := range map[string]struct {
		spec  fsm.Spec
		field string
		says  string
	}{
		"zero":                 {fsm.Spec{}, "machine", "empty"},
		"undeclared":           {(&fsm.Machine[int, int]{}).New(1), "machine", "empty"},
		"bad deadline":         {fsm.Declare[int, int]("m", fsm.Deadline(-1)).New(1), "machine", "deadline"},
		"bad declaration":      {fsm.Declare[int, int]("m", fsm.Version(-1)).New(1), "machine", "version"},
		"queue":                {good.Queue(""), "queue", "empty"},
		"long queue":           {good.Queue(long(513)), "queue", "at most 512"},
		"step":                 {good.Step(""), "step", "empty"},
		"step NUL":             {good.Step("a\x00"), "step", "NUL"},
		"key":                  {good.Key(""), "key", "empty"},
		"long key":             {good.Key(fsm.Key(long(513))), "key", "at most 512"},
		"key not UTF-8":        {good.Key("\xff"), "key", "UTF-8"},
		"partition key":        {good.PartitionKey(""), "partition_key", "empty"},
		"long partition key":   {good.PartitionKey(long(513)), "partition_key", "at most 512"},
		"scope":                {good.Scope(5), "scope", "5 is no scope"},
		"priority low":         {good.Priority(-32769), "priority", "-32769, want -32768 to 32767"},
		"priority high":        {good.Priority(40000), "priority", "40000"},
		"delay":                {good.After(-time.Nanosecond), "delay", "negative"},
		"long delay":           {good.After(fsm.MaxDelay + 1), "delay", "100 years"},
		"both":                 {good.After(time.Second).At(time.Now()), "at", "both"},
		"both, delay 0":        {good.At(time.Now()).After(0), "at", "both"},
		"far":                  {good.At(time.Now().AddDate(101, 0, 0)), "at", "100 years"},
		"bad retention":        {fsm.Declare[int, int]("m", fsm.Retain(fsm.Retention{Failed: -2})).New(1), "machine", "retain.failed"},
		"retention":            {good.Retain(fsm.Retention{Done: -2}), "retain.done", "RetainNone"},
		"long retention":       {good.Retain(fsm.Retention{Cancelled: fsm.MaxDelay + 1}), "retain.cancelled", "100 years"},
		"no row for a key":     {good.Key("k").Scope(fsm.ScopeAll).Retain(fsm.Retention{Done: fsm.RetainNone}), "retain.done", "scope"},
		"deadline":             {good.Deadline(-time.Nanosecond), "deadline", "negative"},
		"long deadline":        {good.Deadline(fsm.MaxDelay + 1), "deadline", "100 years"},
		"label":                {good.Label("", "x"), "labels", "empty name"},
		"long label":           {good.Label(long(65), ""), "labels", "at most 64"},
		"label NUL":            {good.Label("a\x00", ""), "labels", "NUL"},
		"label not UTF-8":      {good.Label("a", "\xff"), "labels", "UTF-8"},
		"long value":           {good.Label("a", long(257)), "labels", "at most 256"},
		"many labels":          {labelled(good, 17), "labels", "17 labels, at most 16"},
		"state":                {unkeyed, "state", "NaN"},
		"key from state":       {unkeyed.KeyFromState(), "key", "NaN"},
		"policy":               {good.Key("k").OnConflict(3), "conflict", "3 is no policy"},
		"policy without key":   {good.OnConflict(fsm.ConflictReplace), "conflict", "without a correlation key"},
		"policy of a mark":     {good.Key("k").Scope(fsm.ScopeNone).OnConflict(fsm.ConflictNewest), "conflict", "ScopeNone"},
		"window key":           {good.Throttle("", time.Second), "window", "empty"},
		"long window key":      {good.OncePer(fsm.Key(long(513)), time.Second), "window", "at most 512"},
		"window key NUL":       {good.Debounce("a\x00", time.Second, 0), "window", "NUL"},
		"short window":         {good.Throttle("w", time.Millisecond-1), "window", "want 1ms to 100 years"},
		"negative window":      {good.OncePer("w", -time.Hour), "window", "once for -1h0m0s, want 1ms"},
		"long window":          {good.Debounce("w", fsm.MaxDelay+1, 0), "window", "100 years"},
		"two windows":          {good.Throttle("w", time.Second).Debounce("w", time.Second, 0), "window", "one window"},
		"short most":           {good.Debounce("w", time.Second, time.Millisecond), "window", "at most 1ms, want 0 or 1s"},
		"negative most":        {good.Debounce("w", time.Second, -1), "window", "want 0 or 1s"},
		"long most":            {good.Debounce("w", time.Second, fsm.MaxDelay+1), "window", "100 years"},
		"debounce after":       {good.Debounce("w", time.Second, 0).After(0), "window", "After or At"},
		"debounce at":          {good.At(time.Now()).Debounce("w", time.Second, 0), "window", "After or At"},
		"debounce of a key":    {good.Key("k").Debounce("w", time.Second, 0), "window", "ScopeNone"},
		"key from bad numbers": {cartMachine.New(cart{Extra: json.Number("1e200000")}).KeyFromState(), "key", "numeric"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := hidden.Spec(c.spec, &step.Env{})
			require.Nil(t, got)
			var bad *fsm.SpecError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, c.field, bad.Field)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := hidden.Spec(fsm.Declare[int, int]("m", fsm.Version(-1)).New(1), nil)
	require.ErrorAs(t, err, new(*fsm.DefinitionError))
	_, err = hidden.Spec(unkeyed.KeyFromState().Key("k"), nil)
	require.ErrorContains(t, err, "state", "a later key replaces one that could not be made")
}

func TestSpecPastTimes(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{{}, time.Date(-9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1, 0)} {
		got, err := hidden.Spec(cartMachine.New(cart{}).At(at), nil)
		require.NoError(t, err)
		require.True(t, got.At.Equal(time.Unix(0, 0)), "%v became %v", at, got.At)
	}
	recent := time.Now().Add(-time.Second)
	got, err := hidden.Spec(cartMachine.New(cart{}).At(recent), nil)
	require.NoError(t, err)
	require.Equal(t, recent, got.At, "the database's clock decides")
}

func TestSpecTooLarge(t *testing.T) {
	t.Parallel()
	_, err := hidden.Spec(cartMachine.New(cart{Extra: long(99)}), &step.Env{Limits: step.Limits{PayloadBytes: 100}})
	require.ErrorIs(t, err, fsm.ErrTooLarge)
}

func TestScopesAreThoseOfTheSeam(t *testing.T) {
	t.Parallel()
	require.Equal(t, []fsm.Scope{0, 1, 2, 3, 4}, []fsm.Scope{fsm.ScopeLive, fsm.ScopeLiveOrDone, fsm.ScopeLiveOrFailed, fsm.ScopeAll, fsm.ScopeNone})
}

func TestKeyFromState(t *testing.T) {
	t.Parallel()
	raw := fsm.Declare[json.RawMessage, fsm.None]("raw")
	key := func(state string) fsm.Key { return raw.New(json.RawMessage(state)).KeyFromState().Options().Key }
	for _, equal := range [][]string{
		{`{"a":1,"b":[true,null,"x"]}`, ` { "b" : [true, null, "x"], "a" : 1 } `, `{"a":9,"b":[true,null,"\u0078"],"a":1}`},
		{`1`, `1.0`, `1e0`, `10e-1`, `0.1E+1`, `100e-2`},
		{`0`, `-0`, `0.00`, `0e5`},
		{`-1200`, `-1.2e3`, `-1200.000`},
		{`"😀"`, `"\ud83d\ude00"`},
	} {
		for _, other := range equal[1:] {
			require.Equal(t, key(equal[0]), key(other), "%s %s", equal[0], other)
		}
	}
	seen := map[fsm.Key]string{}
	for _, state := range []string{
		`0`, `1`, `-1`, `10`, `1e400`, `1e401`, `9007199254740993`, `9007199254740992`, `"1"`, `"1e0"`, `[1]`, `[[1]]`, `[1,1]`, `[11]`, `{"a":1}`,
		`{"a":"1"}`, `["a",1]`, `null`, `"null"`, `"<nil>"`, `true`, `false`, `[]`, `{}`, `""`, `"a,b"`, `["a","b"]`, `["a,\"1:b"]`, `{"a":1,"b":2}`, `{"a":{"b":2}}`,
	} {
		k := key(state)
		require.Empty(t, seen[k], state)
		seen[k] = state
	}

	// The key is durable: another text would make every key new.
	require.Equal(t, fsm.Key("sha256:13ab37869f2f7d823c1267ccbba88b170363510ad3c22d947109f77b5bc6f406"), cartMachine.New(cart{ID: 42, Items: map[string]int{"a": 1}}).KeyFromState().Options().Key)

	same := func(m *fsm.Machine[cart, string]) fsm.Key { return m.New(cart{ID: 42}).KeyFromState().Options().Key }
	require.Equal(t, same(cartMachine), same(fsm.Declare[cart, string]("cart", fsm.Version(2))), "of every version")
	require.NotEqual(t, same(cartMachine), same(fsm.Declare[cart, string]("cart2")))
	got, err := hidden.Spec(cartMachine.New(cart{ID: 42}).KeyFromState(), &step.Env{Codec: foreign{raw: `"cipher"`}})
	require.NoError(t, err)
	require.Equal(t, string(same(cartMachine)), got.Key, "independent of the codec")
	require.Equal(t, `"cipher"`, string(got.State))
}

func TestMessage(t *testing.T) {
	t.Parallel()
	m := paid.With(5).DedupKey("evt-7")
	require.Equal(t, "paid", m.Name())
	require.Equal(t, 5, m.Payload())
	got, err := hidden.Signal(m, nil)
	require.NoError(t, err)
	require.Equal(t, &step.Signal{Name: "paid", Payload: json.RawMessage(`5`), DedupKey: "evt-7"}, got)

	plain := paid.With(5)
	plain.DedupKey("dropped")
	got, err = hidden.Signal(plain, nil)
	require.NoError(t, err)
	require.Empty(t, got.DedupKey)

	for name, c := range map[string]struct {
		message fsm.Message
		field   string
		says    string
	}{
		"zero":            {fsm.Message{}, "name", "empty"},
		"long name":       {fsm.DeclareSignal[int](long(513)).With(1), "name", "at most 512"},
		"empty dedup":     {paid.With(1).DedupKey(""), "dedup_key", "empty"},
		"long dedup":      {paid.With(1).DedupKey(long(513)), "dedup_key", "at most 512"},
		"NUL":             {other.With("a\x00"), "payload", "NUL"},
		"not UTF-8":       {other.With("\xff"), "payload", "UTF-8"},
		"does not encode": {fsm.DeclareSignal[any]("x").With(func() {}), "payload", "unsupported"},
		"too large":       {other.With(long(1 << 20)), "payload", "at most"},
	} {
		_, err := hidden.Signal(c.message, &step.Env{})
		var bad *fsm.MessageError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, c.field, bad.Field, name)
		require.ErrorContains(t, err, c.says, name)
	}
}
