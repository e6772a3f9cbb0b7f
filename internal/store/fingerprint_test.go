package store_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// entryOf is the SQL of a list of errors with one entry, of a step and with a text.
func entryOf(step, text string) string {
	return `jsonb_build_array(jsonb_build_object('kind', 'fail', 'step', ` + step + `, 'error', ` + text + `))`
}

// failedOnes inserts instances that have failed by errors, and returns their fingerprints.
func (b bench) failedOnes(errs ...string) (fingerprints []int64) {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), byHand(`INSERT INTO gendurable.gen_durable (fsm, step, status, failure, last_error, finished_at, errors)
		SELECT 'm', 's', 'failed', 'error', e, now(), `+entryOf("'s'", "e")+` FROM unnest($1::text[]) e RETURNING fingerprint`), errs)
	require.NoError(b.t, err)
	for rows.Next() {
		var one int64
		require.NoError(b.t, rows.Scan(&one))
		fingerprints = append(fingerprints, one)
	}
	require.NoError(b.t, rows.Err())
	return fingerprints
}

// Errors have one fingerprint if they differ only in ids that have digits, in hexadecimal words,
// quoted texts, addresses of networks, mail and memory, and numbers.
func TestFingerprintsFoldWhatDiffers(t *testing.T) {
	b := newBench(t)
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a sample
	hex := func(n int) string {
		var text strings.Builder
		for range n {
			text.WriteByte("0123456789abcdef"[r.IntN(16)])
		}
		return text.String()
	}
	for name, one := range map[string]func() string{
		"number": func() string {
			return fmt.Sprintf("no order %d after %dms, %.3f %% of %d", r.Int64(), r.IntN(9), r.Float64()*1e9, -r.IntN(99))
		},
		"hex":       func() string { return "request " + hex(12) + " was refused: 502" },
		"short hex": func() string { return "request " + hex(4+r.IntN(3)) + ": refused" },
		"letters": func() string {
			return "request " + strings.Map(func(rune) rune { return rune("abcdef"[r.IntN(6)]) }, "12345678") + " was refused"
		},
		"upper case": func() string { return "request " + strings.ToUpper(hex(8)) + " was refused" },
		"uuid":       func() string { return "POST https://api.example.com/v1/orders/" + uuid.NewString() + "/pay: EOF" },
		"prefixed":   func() string { return "charge ch_3" + hex(10) + "Zx and job-" + hex(8) + "-" + hex(4) + " differ" },
		"double quotes": func() string {
			return fmt.Sprintf("customer %q is unknown", strings.Repeat("x y\n\"", r.IntN(5))+hex(3))
		},
		"single quotes": func() string { return "can't open '" + strings.Repeat("of ada ", r.IntN(5)) + "': it doesn't exist" },
		"backquotes":    func() string { return "no field `" + strings.Repeat("z", 1+r.IntN(8)) + "`" },
		"unclosed":      func() string { return `unexpected end of "` + strings.Repeat("lorem ", r.IntN(200)) },
		"address": func() string {
			return fmt.Sprintf("dial tcp %d.%d.0.%d:%d: connection refused", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(65536))
		},
		"v6 address": func() string {
			return fmt.Sprintf("dial tcp [fe80::%x:%x]:443: connection refused", r.IntN(65536), r.IntN(65536))
		},
		"mail address": func() string {
			return "no mailbox " + strings.Repeat("first.", r.IntN(4)) + "last+tag@mail." + []string{"org", "example.com"}[r.IntN(2)] + " here"
		},
		"pointer": func() string { return fmt.Sprintf("panic: nil at 0xc%09x in goroutine %d", r.IntN(1<<30), r.IntN(999)) },
		"time": func() string {
			return fmt.Sprintf("over its deadline of 2026-01-%02dT%02d:04:05.678Z", 1+r.IntN(28), r.IntN(24))
		},
		"long": func() string {
			return "batch of " + hex(16) + " broke: " + strings.Repeat("row "+hex(6)+"; ", 35+r.IntN(40))
		},
	} {
		errs := make([]string, 200)
		for i := range errs {
			errs[i] = one()
		}
		different := map[int64]string{}
		for i, of := range b.failedOnes(errs...) {
			different[of] = errs[i]
		}
		require.Len(t, different, 1, name)
	}
}

// Errors that differ in their words have other fingerprints, and so have equal errors of another
// machine, version, step, queue or kind. An instance that has not failed has none, and one that
// runs again loses its own.
func TestFingerprintsTellFailuresApart(t *testing.T) {
	b := newBench(t)
	errs := []string{"", "connection refused", "connection reset", "no order 7", "no customer 7", "dial tcp 10.0.0.1:80: timeout", "dial udp 10.0.0.1:80: timeout",
		strings.Repeat("x ", 90) + "one", strings.Repeat("x ", 90) + "two", "größer", "kleiner", "can't read", "can't write"}
	different := map[int64]string{}
	for i, of := range b.failedOnes(errs...) {
		require.NotContains(t, different, of, errs[i])
		different[of] = errs[i]
	}
	failure := columns{"fsm": `'m'`, "step": `'s'`, "status": `'failed'`, "failure": `'error'`, "last_error": `'connection refused'`, "finished_at": `now()`,
		"errors": entryOf(`'s'`, `'connection refused'`)}
	read := `SELECT coalesce(fingerprint::text, '-') FROM gendurable.gen_durable WHERE id = $1`
	first := b.text(read, b.insert(failure))
	seen := map[string]bool{first: true}
	for name, value := range map[string]string{"fsm": `'ms'`, "errors": entryOf(`'t'`, `'connection refused'`), "queue": `'q'`, "fsm_version": `2`, "failure": `'decided'`} {
		of := b.text(read, b.insert(failure.with(columns{name: value})))
		require.NotContains(t, seen, of, name)
		seen[of] = true
	}
	require.Equal(t, first, b.text(read, b.insert(failure.with(columns{"priority": `9`, "state": `'{"a": 1}'`, "visit": `7`}))))
	require.Equal(t, "-", b.text(read, b.insert(columns{"fsm": `'m'`, "step": `'s'`, "last_error": `'connection refused'`})))
	id := b.insert(failure)
	b.operate(store.Order{Verb: store.Retry}, id)
	require.Equal(t, "-", b.text(read, id))
}

// A text of a fingerprint has one form.
func TestFingerprintTexts(t *testing.T) {
	t.Parallel()
	for _, of := range []int64{0, 1, -1, 1 << 62, -1 << 63, 0x0123456789abcdef} {
		text := store.FingerprintText(of)
		require.Len(t, text, 16)
		require.Equal(t, of, *store.FingerprintOf(text))
	}
	for _, text := range []string{"", "1", "xyz", "0123456789ABCDEF", "0123456789abcdef0", "+123456789abcdef", " 123456789abcdef", "0x23456789abcdef"} {
		require.Nil(t, store.FingerprintOf(text), text)
	}
}

// A commit that keeps its claim names no column from which Postgres generates another: it would
// compute that for each row of the statement that costs least.
func TestKeptCommitsGenerateNothing(t *testing.T) {
	b := newBench(t)
	rows, err := b.pool.Query(t.Context(), `SELECT DISTINCT a.attname::text FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
		JOIN pg_attrdef x ON x.oid = d.objid JOIN pg_attribute g ON g.attrelid = x.adrelid AND g.attnum = x.adnum AND g.attgenerated = 's' AND g.attnum <> a.attnum
		WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = 'gendurable.gen_durable'::regclass`)
	require.NoError(t, err)
	from, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"status", "correlation_key", "correlation_scope", "failure", "errors", "queue", "fsm", "fsm_version"}, from)
	for _, file := range []string{"commit_kept.sql", "commit_kept.recorded.sql"} {
		text, err := os.ReadFile(filepath.Join("testdata", "sql", file))
		require.NoError(t, err)
		_, set, ok := strings.Cut(string(text), " SET ")
		require.True(t, ok)
		set, _, ok = strings.Cut(set, "\nFROM ")
		require.True(t, ok)
		for _, name := range from {
			require.NotRegexp(t, `\b`+name+` = `, set, file)
		}
	}
}
