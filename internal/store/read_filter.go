package store

import (
	"strconv"
	"time"
)

// Filter selects instances. All criteria must hold, and a zero criterion always holds. The caller
// decides whether the zero Filter may select all instances.
type Filter struct {
	Machine        string
	Version        int
	Step           string
	Queue          string
	Statuses       []string
	Failures       []string
	KeyPrefix      string
	Key            string // the correlation key that the instance occupies
	PartitionKey   string
	Labels         string // a JSON object that the instance's labels contain
	Parent         int64
	InsertedAfter  time.Time // inclusive
	InsertedBefore time.Time // exclusive
	ErrorText      string    // a part of the last error, in upper or lower case
	// Within is not in filterText: boundsSQL looks at it. A list without it has the cursors
	// that it had before there were bounds.
	Within Bounds `json:",omitzero"`
	// Fingerprint selects failed instances; it has the form of FingerprintText.
	Fingerprint string `json:",omitzero"`
	// EndedKey selects the instances that have left the scope of this key. Only reads have it, so it
	// is not in filterText.
	EndedKey string `json:",omitzero"`
}

// FingerprintText returns a fingerprint in the form that users have: 16 hexadecimal digits, which
// JSON does not round.
func FingerprintText(of int64) string {
	text := strconv.FormatUint(uint64(of), 16) //nolint:gosec // the same bits
	return "0000000000000000"[len(text):] + text
}

// FingerprintOf returns the fingerprint of a text, or nil if it is none.
func FingerprintOf(text string) *int64 {
	bits, err := strconv.ParseUint(text, 16, 64)
	if err != nil || FingerprintText(int64(bits)) != text { //nolint:gosec // the same bits
		return nil
	}
	return new(int64(bits)) //nolint:gosec // the same bits
}

// Bounds are the instances that a caller may see and change. The zero Bounds are all.
type Bounds struct {
	Queues, Machines []string // one of these; nil: any; empty: no instance
	Labels           string   // a JSON object that the instance's labels contain; "": any
}

// IsZero reports whether the bounds are all instances.
func (b Bounds) IsZero() bool { return b.Queues == nil && b.Machines == nil && b.Labels == "" }

// filterText is the condition of a Filter, and appliesText the condition of a verb, for a statement
// that locks: its text is static. Package query has the same criteria as predicates of ent;
// TestListIsItsFilter holds both to each other.
//
// $1 machine $2 version $3 step $4 queue $5 statuses $6 failures $7 key prefix $8 key $9 partition
// key $10 labels $11 parent $12 inserted after $13 inserted before; $14 the verb's statuses $15
// paused $16 later only; $26 error text $27 fingerprint
const (
	filterText = `($1::text IS NULL OR g.fsm = $1) AND ($2::int IS NULL OR g.fsm_version = $2) AND ($3::text IS NULL OR g.step = $3)
  AND ($4::text IS NULL OR g.queue = $4) AND ($5::text[] IS NULL OR g.status::text = ANY($5)) AND ($6::text[] IS NULL OR g.failure = ANY($6))
  AND ($7::text IS NULL OR starts_with(g.correlation_key, $7)) AND ($8::text IS NULL OR g.correlation_guard = $8)
  AND ($9::text IS NULL OR g.partition_key = $9) AND ($10::jsonb IS NULL OR g.labels @> $10) AND ($11::bigint IS NULL OR g.parent_id = $11)
  AND ($12::timestamptz IS NULL OR g.inserted_at >= $12) AND ($13::timestamptz IS NULL OR g.inserted_at < $13)
  AND ($26::text IS NULL OR strpos(lower(g.last_error), lower($26)) > 0)
  AND ($27::bigint IS NULL OR g.fingerprint = $27)`
	appliesText = `g.status::text = ANY($14::text[]) AND ($15::boolean IS NULL OR g.paused = $15)
  AND (NOT $16::boolean OR g.eligible_at > (SELECT clock_timestamp()))`
)

// args returns the arguments of filterText except the ones of tail, which follow the arguments of
// the statement.
func (f *Filter) args() []any {
	return []any{
		optional(f.Machine), given(f.Version), optional(f.Step), optional(f.Queue), f.Statuses, f.Failures, optional(f.KeyPrefix), optional(f.Key),
		optional(f.PartitionKey), optional(f.Labels), given(f.Parent), timeOf(f.InsertedAfter), timeOf(f.InsertedBefore),
	}
}

// tail returns the last arguments of filterText.
func (f *Filter) tail() []any { return []any{optional(f.ErrorText), FingerprintOf(f.Fingerprint)} }

// operable returns the arguments of filterText and appliesText.
func (f *Filter) operable(v Verb) []any {
	a := verbs[v]
	return append(f.args(), a.Statuses, a.Paused, a.Later)
}

func given[N int | int64](n N) *N {
	if n == 0 {
		return nil
	}
	return &n
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
