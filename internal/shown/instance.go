// Package shown has the form in which operators see an instance: the command line tool and the
// dashboard write it as JSON.
//
// Of the project it may import packages ent and fsm.
package shown

import (
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
)

// Instance is an instance without its documents. It is embedded: a field that may be absent, such
// as the time of its end, is null in one answer and left out of the other, and stands beside it.
type Instance struct {
	ID           fsm.ID      `json:"id"`
	Key          fsm.Key     `json:"key,omitempty"`
	Machine      string      `json:"machine"`
	Version      int         `json:"version"`
	Step         string      `json:"step"`
	Status       fsm.Status  `json:"status"`
	Paused       bool        `json:"paused"`
	Queue        string      `json:"queue"`
	Priority     int         `json:"priority"`
	PartitionKey string      `json:"partition_key,omitempty"`
	Visit        int64       `json:"visit"`
	Attempt      int         `json:"attempt"`
	Crashes      int         `json:"crashes"`
	Failure      fsm.Failure `json:"failure,omitempty"`
	LastError    string      `json:"last_error,omitempty"`
	EligibleAt   time.Time   `json:"eligible_at"`
	InsertedAt   time.Time   `json:"inserted_at"`
}

// InstanceOf returns the form of an instance, with times in UTC.
func InstanceOf(i *fsm.RawInstance) Instance {
	return Instance{
		ID: i.ID, Key: i.Key, Machine: i.Machine, Version: i.Version, Step: i.Step, Status: i.Status, Paused: i.Paused, Queue: i.Queue,
		Priority: i.Priority, PartitionKey: i.PartitionKey, Visit: i.Visit, Attempt: i.Attempt, Crashes: i.Crashes, Failure: i.Failure,
		LastError: i.LastError, EligibleAt: i.EligibleAt.UTC(), InsertedAt: i.InsertedAt.UTC(),
	}
}

// Snapshot returns a row of the ent client as the reads of the engine return it.
func Snapshot(r *ent.Instance) fsm.RawInstance {
	return fsm.RawInstance{
		ID: r.ID, Machine: r.Machine, Version: r.Version, Step: r.Step, Queue: r.Queue, Priority: int(r.Priority), Status: r.Status,
		State: r.State, Result: r.Result, Attempt: int(r.Attempt), Crashes: int(r.Crashes), Visit: r.Visit, Failure: r.Failure,
		LastError: At(r.LastError), Key: fsm.Key(At(r.CorrelationKey)), PartitionKey: At(r.PartitionKey), Paused: r.Paused,
		EligibleAt: r.EligibleAt, InsertedAt: r.InsertedAt, FinishedAt: At(r.FinishedAt), Deadline: At(r.Deadline), Labels: r.Labels,
		Progress: r.Progress,
	}
}

// At returns what a column that may be NULL has, or the zero value.
func At[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
