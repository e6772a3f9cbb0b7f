package model

import (
	"cmp"
	"slices"
)

// Lost is a claim with a partition key that was taken away from its worker while its step may
// still run: by a reap, or by a cancel. Other workers' steps of the key wait until the step has
// ended, or its worker is gone.
type Lost struct {
	Key    string
	Worker string
	Token  int64
}

// lose notes that an executing instance's claim is taken away.
func (w *World) lose(i *Instance) {
	if i.Status == Executing && i.PartitionKey != "" {
		w.lost = append(w.lost, Lost{i.PartitionKey, i.Worker, i.Token})
	}
}

// Lost returns the claims that are noted as lost, by ascending token.
func (w *World) Lost() []Lost {
	return slices.SortedFunc(slices.Values(w.lost), func(a, b Lost) int { return cmp.Compare(a.Token, b.Token) })
}

// lingers reports whether another worker's lost claim of a partition key is noted.
func (w *World) lingers(key, worker string) bool {
	return key != "" && slices.ContainsFunc(w.lost, func(l Lost) bool { return l.Key == key && l.Worker != worker })
}

// Lingering returns those keys for which a worker still has to wait. It forgets what workers that
// are gone have left there.
func (w *World) Lingering(worker string, keys []string, lives func(worker string) bool) (lingering []string) {
	w.forget(func(l Lost) bool { return l.Worker != worker && slices.Contains(keys, l.Key) && !lives(l.Worker) })
	for _, key := range keys {
		if w.lingers(key, worker) {
			lingering = append(lingering, key)
		}
	}
	return lingering
}

// Landed forgets a worker's lost claim, whose step has ended.
func (w *World) Landed(worker string, token int64) {
	w.forget(func(l Lost) bool { return l.Worker == worker && l.Token == token })
}

// Forget forgets the lost claims of workers that are gone, and a worker's lost claims that are not
// in flight there: it never had them.
func (w *World) Forget(worker string, flying []int64, lives func(worker string) bool) {
	w.forget(func(l Lost) bool {
		if l.Worker == worker {
			return !slices.Contains(flying, l.Token)
		}
		return !lives(l.Worker)
	})
}

func (w *World) forget(which func(Lost) bool) { w.lost = slices.DeleteFunc(w.lost, which) }
