package dashboard

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// These functions merge the answers of several places into one. The answer of a single engine
// stays as it is.

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// earlier returns the earlier of two times. A zero time is unknown, and does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func mergeCounts(all []engine.Counts) engine.Counts {
	if len(all) == 1 {
		return all[0]
	}
	out := engine.Counts{Complete: true}
	sums := map[engine.Count]int64{}
	for _, one := range all {
		out.At = earlier(out.At, one.At)
		out.Took = max(out.Took, one.Took)
		out.Complete = out.Complete && one.Complete
		for _, c := range one.Counts {
			n := c.Count
			c.Count = 0
			sums[c] += n
		}
	}
	for c, n := range sums {
		c.Count = n
		out.Counts = append(out.Counts, c)
	}
	slices.SortFunc(out.Counts, func(a, b engine.Count) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Step, b.Step),
			cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Status, b.Status))
	})
	return out
}

// mergeLoads adds up the load of each queue. A queue counts as paused from the time at which the
// first place paused it.
func mergeLoads(all []engine.Load) engine.Load {
	if len(all) == 1 {
		return all[0]
	}
	var out engine.Load
	queues := map[string]*engine.QueueLoad{}
	for _, one := range all {
		out.At = latest(out.At, one.At)
		out.Workers = append(out.Workers, one.Workers...)
		for _, q := range one.Queues {
			sum := queues[q.Queue]
			if sum == nil {
				queues[q.Queue] = new(q)
				continue
			}
			sum.Due, sum.Delayed, sum.InLine, sum.Executing = sum.Due+q.Due, sum.Delayed+q.Delayed, sum.InLine+q.InLine, sum.Executing+q.Executing
			sum.Workers, sum.Slots, sum.AtLeast = sum.Workers+q.Workers, sum.Slots+q.Slots, sum.AtLeast || q.AtLeast
			sum.OldestDue, sum.PausedSince = earlier(sum.OldestDue, q.OldestDue), earlier(sum.PausedSince, q.PausedSince)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		out.Queues = append(out.Queues, *queues[name])
	}
	return out
}

// mergeRates keeps the time that all places cover.
func mergeRates(all []engine.Rates) engine.Rates {
	if len(all) == 1 {
		return all[0]
	}
	out := engine.Rates{Bin: all[0].Bin}
	for _, one := range all {
		out.At, out.InsertedSince, out.EndedSince = latest(out.At, one.At), latest(out.InsertedSince, one.InsertedSince), latest(out.EndedSince, one.EndedSince)
	}
	for _, one := range all {
		for _, b := range one.Bins {
			end := b.At.Add(out.Bin)
			if !end.After(out.InsertedSince) {
				b.Inserted = 0
			}
			if !end.After(out.EndedSince) {
				b.Ended, b.Failed = 0, 0
			}
			out.Bins = append(out.Bins, b)
		}
	}
	return out
}

func mergeFailures(all []engine.Failures) engine.Failures {
	if len(all) == 1 {
		return all[0]
	}
	var out engine.Failures
	known := map[string]int{}
	for _, one := range all {
		out.Looked, out.More, out.Since = out.Looked+one.Looked, out.More || one.More, earlier(out.Since, one.Since)
		for _, g := range one.Groups {
			n, there := known[g.Fingerprint]
			if !there {
				known[g.Fingerprint] = len(out.Groups)
				out.Groups = append(out.Groups, g)
				continue
			}
			sum := &out.Groups[n]
			sum.Count, sum.AtLeast, sum.First = sum.Count+g.Count, sum.AtLeast || g.AtLeast, earlier(sum.First, g.First)
			if g.Last.After(sum.Last) {
				sum.Last, sum.Newest, sum.Error = g.Last, g.Newest, g.Error
			}
		}
	}
	slices.SortStableFunc(out.Groups, func(a, b engine.FailureGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last))
	})
	return out
}

// mergeDefinitions keeps, for each version of a machine, the definition that was stored last.
func mergeDefinitions(all [][]engine.StoredDefinition) []engine.StoredDefinition {
	if len(all) == 1 {
		return all[0]
	}
	type version struct {
		machine string
		number  int
	}
	known := map[version]engine.StoredDefinition{}
	for _, d := range slices.Concat(all...) {
		if old, there := known[version{d.Machine, d.Version}]; !there || d.UpdatedAt.After(old.UpdatedAt) {
			known[version{d.Machine, d.Version}] = d
		}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b engine.StoredDefinition) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Version, b.Version))
	})
}

// mergeAudits keeps the entries of the time that all pages cover. A page with more entries behind
// it covers the time back to its last entry; the newest of these times counts.
func mergeAudits(all []engine.AuditPage) engine.AuditPage {
	if len(all) == 1 {
		return all[0]
	}
	var out engine.AuditPage
	for _, one := range all {
		out.Next = latest(out.Next, one.Next)
	}
	for _, one := range all {
		for _, e := range one.Entries {
			if !e.At.Before(out.Next) {
				out.Entries = append(out.Entries, e)
			}
		}
	}
	slices.SortStableFunc(out.Entries, func(a, b engine.AuditEntry) int { return b.At.Compare(a.At) })
	return out
}

// schedulesEnded marks the list of a place that has ended.
const schedulesEnded = "\x00"

// schedulesAfter decodes how far the lists of all places have been shown.
func (s *server) schedulesAfter(text string) (map[int]string, error) {
	at := map[int]string{}
	if s.cluster == nil || text == "" {
		return map[int]string{0: text}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &at)
	}
	if err != nil {
		return nil, &engine.QueryError{Field: "After", Err: errors.New("damaged: want the Next of a page, as it was")}
	}
	return at, nil
}

// schedulesNext encodes how far the lists have been shown. The lists of places that are left out do
// not advance.
func (s *server) schedulesNext(after map[int]string, pages []found[engine.SchedulePage]) string {
	if s.cluster == nil {
		return pages[0].value.Next
	}
	next, more := maps.Clone(after), false
	for _, p := range pages {
		if next[p.site.place] = p.value.Next; p.value.Next == "" {
			next[p.site.place] = schedulesEnded
		} else {
			more = true
		}
	}
	if !more {
		return ""
	}
	text, _ := json.Marshal(next) //nolint:errchkjson // numbers and texts
	return base64.RawURLEncoding.EncodeToString(text)
}
