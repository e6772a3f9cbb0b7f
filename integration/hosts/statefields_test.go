package hosts

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/entity/state"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/integration/hosts/ent"
	"github.com/gendurable/gendurable/integration/hosts/ent/haul"
	"github.com/gendurable/gendurable/integration/hosts/ent/order"
	"github.com/gendurable/gendurable/integration/hosts/ent/predicate"
	"github.com/gendurable/gendurable/integration/hosts/machine"
)

// trips are states whose fields have small, large, missing and strange values.
func trips() []machine.Trip {
	noon := time.Date(2031, 2, 28, 12, 0, 0, 0, time.UTC)
	all := []machine.Trip{
		{},
		{Driver: "ada", Vehicle: "van", Stops: 1, Weight: 0.5, Express: true, Due: noon, Last: "decided"},
		{Driver: "Ada", Vehicle: "bike", Stops: 255, Weight: -2, Due: noon.Add(500 * time.Microsecond)},
		{Driver: `a"b\c'd%_`, Weight: 1e300, Due: noon.In(time.FixedZone("", -5*3600)).Add(-time.Hour)},
		{Driver: "bob", Weight: 1e-7, Due: time.Date(2032, 2, 29, 23, 59, 59, 999_999_000, time.UTC)},
		{Driver: "é", Due: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), Express: true},
	}
	for i, metres := range []int64{0, 1 << 62, -1, 9_007_199_254_740_993, 9_007_199_254_740_992, 7} {
		all[i].Metres = metres
		all[i].Depot = machine.Place{City: []string{"", "Oslo", "oslo"}[i%3], Floor: int32(i) - 2}
	}
	return all
}

// deliver saves a haul per state, whose instance does not run, and one without an instance.
func (s *shop) deliver(client *ent.Client, eng *engine.Engine, states []machine.Trip) {
	s.t.Helper()
	for i, state := range states {
		_, err := client.Haul.Create().SetNumber(i).SaveWith(s.t.Context(), eng, func(*ent.Haul) fsm.Spec {
			return machine.Deliver.New(state).After(time.Hour)
		})
		require.NoError(s.t, err)
	}
	require.NoError(s.t, client.Haul.Create().SetNumber(len(states)).Exec(s.t.Context()))
}

func numbers(t *testing.T, q *ent.HaulQuery) (found []int) {
	t.Helper()
	all, err := q.Order(haul.ByNumber()).All(t.Context())
	require.NoError(t, err)
	for _, d := range all {
		found = append(found, d.Number)
	}
	return found
}

// comparing checks a field's predicates against what Go says of the values.
func comparing[T any](t *testing.T, client *ent.Client, field state.Ordered[predicate.Haul, haul.OrderOption, T], of func(machine.Trip) T, compare func(a, b T) int) {
	t.Helper()
	var values []T
	for _, s := range trips() {
		values = append(values, of(s))
	}
	check := func(what string, p predicate.Haul, accepts func(T) bool) {
		t.Helper()
		var want []int
		for i, v := range values {
			if accepts(v) {
				want = append(want, i)
			}
		}
		require.Equal(t, want, numbers(t, client.Haul.Query().Where(p)), what)
	}
	for _, v := range values {
		check("EQ", field.EQ(v), func(o T) bool { return compare(o, v) == 0 })
		check("NEQ", field.NEQ(v), func(o T) bool { return compare(o, v) != 0 })
		check("GT", field.GT(v), func(o T) bool { return compare(o, v) > 0 })
		check("GTE", field.GTE(v), func(o T) bool { return compare(o, v) >= 0 })
		check("LT", field.LT(v), func(o T) bool { return compare(o, v) < 0 })
		check("LTE", field.LTE(v), func(o T) bool { return compare(o, v) <= 0 })
	}
	among := func(o T) bool { return compare(o, values[0]) == 0 || compare(o, values[2]) == 0 }
	check("In", field.In(values[0], values[2]), among)
	check("NotIn", field.NotIn(values[0], values[2]), func(o T) bool { return !among(o) })
	check("In nothing", field.In(), func(T) bool { return false })
	check("NotIn nothing", field.NotIn(), func(T) bool { return true })

	for _, options := range [][]sql.OrderTermOption{nil, {sql.OrderDesc()}} {
		all, err := client.Haul.Query().Order(field.By(options...), haul.ByNumber()).All(t.Context())
		require.NoError(t, err)
		require.Len(t, all, len(values)+1)
		require.Equal(t, len(values), all[len(values)].Number, "the one without an instance comes last")
		require.True(t, slices.IsSortedFunc(all[:len(values)], func(a, b *ent.Haul) int {
			c := compare(values[a.Number], values[b.Number])
			if options != nil {
				c = -c
			}
			return cmp.Or(c, a.Number-b.Number)
		}))
	}
}

// collated compares texts as the database orders them.
func (s *shop) collated(a, b string) (c int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `SELECT CASE WHEN $1::text = $2 THEN 0 WHEN $1::text < $2 THEN -1 ELSE 1 END`, a, b).Scan(&c))
	return c
}

// Predicates and orders on fields of the state agree with Go on what the states decode to.
func TestStateFieldsAgreeWithGo(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		s.deliver(client, s.eng, trips())
		f := haul.InstanceState(s.eng)
		comparing(t, client, f.Stops, func(s machine.Trip) uint8 { return s.Stops }, cmp.Compare)
		comparing(t, client, f.Weight, func(s machine.Trip) float64 { return s.Weight }, cmp.Compare)
		comparing(t, client, f.Metres, func(s machine.Trip) int64 { return s.Metres }, cmp.Compare)
		comparing(t, client, f.Depot.Floor, func(s machine.Trip) int32 { return s.Depot.Floor }, cmp.Compare)
		comparing(t, client, f.Due, func(s machine.Trip) time.Time { return s.Due }, time.Time.Compare)
		comparing(t, client, f.Driver.Ordered, func(s machine.Trip) string { return s.Driver }, s.collated)
		comparing(t, client, f.Vehicle.Ordered, func(s machine.Trip) machine.Vehicle { return s.Vehicle }, func(a, b machine.Vehicle) int { return s.collated(string(a), string(b)) })
		comparing(t, client, f.Last.Ordered, func(s machine.Trip) fsm.Failure { return s.Last }, func(a, b fsm.Failure) int { return s.collated(string(a), string(b)) })

		where := func(p predicate.Haul, accepts func(machine.Trip) bool) {
			t.Helper()
			var want []int
			for i, s := range trips() {
				if accepts(s) {
					want = append(want, i)
				}
			}
			require.Equal(t, want, numbers(t, client.Haul.Query().Where(p)))
		}
		for _, part := range []string{"", "a", "A", "da", `"b\`, "%", "_", "'", "é", "bob", "none"} {
			where(f.Driver.Contains(part), func(s machine.Trip) bool { return strings.Contains(s.Driver, part) })
			where(f.Driver.HasPrefix(part), func(s machine.Trip) bool { return strings.HasPrefix(s.Driver, part) })
			where(f.Driver.HasSuffix(part), func(s machine.Trip) bool { return strings.HasSuffix(s.Driver, part) })
			where(f.Driver.EqualFold(part), func(s machine.Trip) bool { return strings.EqualFold(s.Driver, part) })
			where(f.Driver.ContainsFold(part), func(s machine.Trip) bool {
				return strings.Contains(strings.ToLower(s.Driver), strings.ToLower(part))
			})
			where(f.Depot.City.EqualFold(part), func(s machine.Trip) bool { return strings.EqualFold(s.Depot.City, part) })
		}
		for _, b := range []bool{true, false} {
			where(f.Express.EQ(b), func(s machine.Trip) bool { return s.Express == b })
			where(f.Express.NEQ(b), func(s machine.Trip) bool { return s.Express != b })
		}
		first, err := client.Haul.Query().Order(f.Express.By(sql.OrderDesc()), haul.ByNumber()).First(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, first.Number)
		where(haul.And(f.Express.EQ(true), f.Depot.City.In("Oslo", "oslo")), func(s machine.Trip) bool { return s.Express && s.Depot.City != "" })
		n, err := client.Haul.Query().Where(haul.Not(f.Express.EQ(true))).Count(t.Context())
		require.NoError(t, err)
		require.Equal(t, 5, n, "a negation accepts what has no instance")
	})
}

// States of other versions and machines, and of other shapes than the type's, fail no query. Of the
// versions that the declaration reads, a missing or null field is zero.
func TestStateFieldsOfStrangeStates(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		s.deliver(client, s.eng, []machine.Trip{{Stops: 3, Driver: "ada", Due: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)}})
		f := haul.InstanceState(s.eng)
		accepted := func() (out []bool) {
			t.Helper()
			for _, p := range []predicate.Haul{f.Stops.GTE(3), f.Stops.EQ(0), f.Driver.HasPrefix("a"), f.Driver.EQ(""), f.Due.GT(time.Time{}), f.Due.LTE(time.Time{}), f.Depot.City.EQ("")} {
				n, err := client.Haul.Query().Where(p).Count(t.Context())
				require.NoError(t, err)
				out = append(out, n == 1)
			}
			for _, o := range []haul.OrderOption{f.Stops.By(), f.Driver.By(), f.Due.By(), f.Express.By()} {
				all, err := client.Haul.Query().Order(o, haul.ByNumber()).All(t.Context())
				require.NoError(t, err)
				require.Len(t, all, 2)
			}
			return out
		}
		there, zero, none := []bool{true, false, true, false, true, false, true}, []bool{false, true, false, true, false, true, true}, make([]bool, 7)
		require.Equal(t, there, accepted())
		for version, want := range [][]bool{1: none, 2: there, 3: there, 4: none} {
			if version > 0 {
				_, err := s.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET fsm_version = $1`, version)
				require.NoError(t, err)
				require.Equal(t, want, accepted(), version)
			}
		}
		s.exec(`UPDATE gendurable.gen_durable SET fsm_version = 3`)
		for document, want := range map[string][]bool{
			`{}`: zero, `{"stops": null, "Driver": null, "due": null, "depot": null}`: zero, `[]`: zero, `"x"`: zero,
			`{"stops": "3", "Driver": 5, "due": 7, "depot": {"City": {}}}`: none,
			`{"stops": [3], "Driver": ["ada"], "due": {}, "depot": []}`:    {false, false, false, false, false, false, true},
		} {
			_, err := s.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET state = $1::text::jsonb`, document)
			require.NoError(t, err)
			require.Equal(t, want, accepted(), document)
		}
		for _, due := range []string{"", "soon", "2031-02-29T00:00:00Z", "2031-13-01T00:00:00Z", "2031-04-31T00:00:00Z", "1900-02-29T00:00:00Z", "0000-01-01T00:00:00Z",
			"2031-01-01T24:00:00Z", "2031-01-01T00:00:60Z", "2031-01-01T00:00:00+16:00", "2031-01-01T00:00:00", "2031-01-01", "infinity", "2031-01-01T00:00:00Z\n"} {
			text, err := json.Marshal(map[string]string{"due": due})
			require.NoError(t, err)
			_, err = s.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET state = $1::text::jsonb`, string(text))
			require.NoError(t, err)
			require.Equal(t, []bool{false, false}, accepted()[4:6], due)
		}
		for _, due := range []string{"2000-02-29T23:59:59.999999999+15:59", "2032-02-29T00:00:00-15:59", "9999-12-31T23:59:59Z", "2031-08-31T00:00:00.5Z", "2031-04-30T00:00:00Z"} {
			_, err := time.Parse(time.RFC3339Nano, due)
			require.NoError(t, err)
			_, err = s.pool.Exec(t.Context(), `UPDATE gendurable.gen_durable SET state = jsonb_build_object('due', $1::text)`, due)
			require.NoError(t, err)
			require.Equal(t, []bool{true, false}, accepted()[4:6], due)
		}
		s.exec(`UPDATE gendurable.gen_durable SET fsm = 'refund'`)
		require.Equal(t, none, accepted())
	})
}

// Where the codec hides a state, no predicate and no order passes over that.
func TestStateFieldsOfSealedStates(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *shop, driver dialect.Driver) {
		client := ent.NewClient(ent.Driver(driver))
		sealing, err := engine.New(engine.Config{Pool: s.pool, Codec: turned{}})
		require.NoError(t, err)
		s.deliver(client, sealing, trips()[:2])
		f := haul.InstanceState(sealing)
		for name, p := range map[string]predicate.Haul{
			"a zero": f.Stops.EQ(0), "a number": f.Stops.GT(1), "a text": f.Driver.EQ("ada"), "a part": f.Driver.Contains("a"), "a boolean": f.Express.EQ(false),
			"a time": f.Due.LT(time.Now()), "one of several": f.Depot.City.In("Oslo"), "a negation": haul.Not(f.Weight.EQ(1)),
		} {
			_, err := client.Haul.Query().Where(p).All(t.Context())
			require.ErrorIs(t, err, state.ErrSealed, name)
			_, err = client.Haul.Query().Where(p).IDs(t.Context())
			require.ErrorIs(t, err, state.ErrSealed, name)
			_, err = client.Haul.Query().Where(p).Count(t.Context())
			require.ErrorIs(t, err, state.ErrSealed, name)
		}
		for _, o := range []haul.OrderOption{f.Stops.By(), f.Due.By(), f.Express.By(), f.Driver.By()} {
			_, err := client.Haul.Query().Order(o).All(t.Context())
			require.ErrorIs(t, err, state.ErrSealed)
		}
		n, err := client.Haul.Update().Where(f.Stops.EQ(0)).SetNumber(9).Save(t.Context())
		require.ErrorIs(t, err, state.ErrSealed)
		require.Zero(t, n)

		// A codec that keeps the JSON of a state is none that seals.
		keeping, err := engine.New(engine.Config{Pool: s.pool, Codec: respelled{}})
		require.NoError(t, err)
		_, err = client.Haul.Query().Where(haul.InstanceState(keeping).Stops.EQ(1)).All(t.Context())
		require.NoError(t, err)
	})
}

// respelled is a codec that stores the JSON of a value, spelled otherwise.
type respelled struct{ fsm.JSON }

func (c respelled) Encode(v any) (json.RawMessage, error) {
	text, err := c.JSON.Encode(v)
	return json.RawMessage(strings.ReplaceAll(string(text), ":", ": ")), err
}

// Predicates on states select what is updated and deleted, and go with those on the entity.
func TestStateFieldsInMutations(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	s.waiting(client, 1, 2, 3)
	f := order.InstanceState(s.eng)
	n, err := client.Order.Update().Where(f.Order.In(1, 3), order.Customer("ada")).SetCustomer("bob").Save(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = client.Order.Delete().Where(f.Cents.GTE(100), f.Order.NEQ(2)).ExecWith(context.Background(), s.eng)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	left, err := client.Order.Query().Where(f.Order.EQ(2)).QueryInstance(s.eng).Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, left)
}

// The guide's code.
func TestLargeOrders(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	client := s.client(s.db("pgx"))
	_, err := place(t.Context(), client, s.eng, "ada", 99_99)
	require.NoError(t, err)
	for _, cents := range []int64{100_00, 200_00} {
		_, err = place(t.Context(), client, s.eng, "eve", cents)
		require.NoError(t, err)
		_, err = place(t.Context(), client, s.eng, "ada", cents)
		require.NoError(t, err)
	}
	found, err := large(t.Context(), client, s.eng, "ada")
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Equal(t, []int64{200_00, 100_00}, []int64{found[0].Cents, found[1].Cents})
}
