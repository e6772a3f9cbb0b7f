package store

import (
	"fmt"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

// The retention of an instance is its own if the column retain has one: µs for one that is done,
// that has failed, and that was cancelled. A negative one stands for the setting of the GC's
// process. It is the insert that sets it. An insertion none of whose specs has one sends the
// statement without it.

// retain returns the statement that sets retentions, and its arguments, if a spec has one.
func (c *specs) retain(plain, retaining *statement, args ...any) (text *statement, all []any) {
	if c.retains == nil {
		return plain, args
	}
	return retaining, append(args, c.retains)
}

// retainText returns a retention as the array that is stored.
func retainText(r step.Retain) string {
	us := func(d time.Duration) int64 {
		switch {
		case d == 0:
			return -1
		case d < 0:
			return 0
		}
		return max(1, micros(d))
	}
	return fmt.Sprintf("{%d,%d,%d}", us(r.Done), us(r.Failed), us(r.Cancelled))
}

// ownRetention is how long an instance that has ended is kept by its own retention, in µs:
// negative or NULL if it has none for how it ended. One that was cancelled is kept as one that
// failed, if its own retention says nothing else. The text equals the index
// gen_durable_retained's, with the row as g.
func ownRetention(row string) string {
	return `CASE WHEN ` + row + `.status = 'done'::{s}.durable_status THEN ` + row + `.retain[1] WHEN ` + row + `.failure = 'cancelled' AND ` + row +
		`.retain[3] >= 0 THEN ` + row + `.retain[3] ELSE ` + row + `.retain[2] END`
}

// untilText is when the own retention of row g ends, as a time in UTC. The text equals the index
// gen_durable_retained's.
var untilText = `(timezone('UTC', g.finished_at) + least(` + ownRetention("g") + `, 3162240000000000) * interval '00:00:00.000001')`

// retainedFor is the retention of an instance that has ended, in µs. The bound keeps what foreign
// SQL may have written from being more than Postgres can subtract.
//
// $1, $2, $3 the process' retention of done, failed and cancelled, µs
func retainedFor(row string) string {
	return `CASE WHEN coalesce(` + ownRetention(row) + `, -1) >= 0 THEN least(` + ownRetention(row) + `, 3162240000000000)
    WHEN ` + row + `.status = 'done' THEN $1::bigint WHEN ` + row + `.failure = 'cancelled' THEN $3::bigint ELSE $2::bigint END`
}
