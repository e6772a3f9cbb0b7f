package dashboard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/shown"
)

// apiDocument is a document as far as it may be seen.
type apiDocument struct {
	Value  json.RawMessage `json:"value"`            // null: there is none, or it is not shown
	Hidden bool            `json:"hidden,omitempty"` // there is one that may not be seen
	Large  int             `json:"large,omitempty"`  // its bytes, if there is too much to show here
}

func apiDocumentOf(d document) apiDocument {
	return apiDocument{json.RawMessage(d.Text), d.Hidden, d.Large}
}

// apiLacks are the places of a cluster that an answer is without.
type apiLacks struct {
	Lacks []lack `json:"lacks,omitempty"`
}

func (l *apiLacks) without(all []lack) { l.Lacks = all }

type apiOverview struct {
	apiLacks

	At       time.Time            `json:"at"`       // of the counts
	Complete bool                 `json:"complete"` // false: a newer count was cut off
	Counts   map[fsm.Status]int64 `json:"counts"`
	Hour     *apiHour             `json:"hour"`    // in all queues that may be seen; null as in a queue
	Queues   []apiQueue           `json:"queues"`  // those in which most happens
	Others   int                  `json:"others"`  // queues that are not among them
	Workers  int                  `json:"workers"` // that are live
	Lost     int                  `json:"lost"`    // that have gone silent within the hour
	Slots    int                  `json:"slots"`
	Failures engine.Failures      `json:"failures"`
	Held     []gateRow            `json:"held"` // limits at which somebody waits
	Warnings []string             `json:"warnings"`
	Places   []apiPlace           `json:"places,omitempty"` // of a cluster
}

// apiPlace is a place of a cluster. One with a field down is in no other number of the answer.
type apiPlace struct {
	Place   int                  `json:"place"`
	Down    string               `json:"down,omitempty"` // why it is left out
	Counts  map[fsm.Status]int64 `json:"counts"`
	Due     int64                `json:"due"`
	AtLeast bool                 `json:"at_least"` // due is a lower bound
	Lag     time.Duration        `json:"lag_ns"`   // of the oldest due instance
	Workers int                  `json:"workers"`  // that are live
	Slots   int                  `json:"slots"`
}

func apiPlacesOf(rows []placeRow) (out []apiPlace) {
	for _, p := range rows {
		out = append(out, apiPlace{p.Place, p.Down, counted(p.Counts), p.Due, p.AtLeast, p.Lag, p.Workers, p.Slots})
	}
	return out
}

type apiQueues struct {
	apiLacks

	At     time.Time  `json:"at"` // of the counts
	Queues []apiQueue `json:"queues"`
}

// apiQueue is a queue: waiting and executing instances are of now, the counts of the newest count.
type apiQueue struct {
	engine.QueueLoad

	Name   string               `json:"name"`
	Lag    time.Duration        `json:"lag_ns"`
	Counts map[fsm.Status]int64 `json:"counts"`
	Hour   *apiHour             `json:"hour"` // null: the access is bound to machines or labels, and it is of all
}

// apiHour counts what happened in the last hour, or in less where too much happened to look at.
type apiHour struct {
	Inserted     int64         `json:"inserted"`
	InsertedOver time.Duration `json:"inserted_over_ns"` // of how long that is
	Ended        int64         `json:"ended"`
	Failed       int64         `json:"failed"` // of them
	EndedOver    time.Duration `json:"ended_over_ns"`
}

func apiHourOf(p *pulse) *apiHour {
	if p == nil {
		return nil
	}
	return &apiHour{p.In, p.InOver, p.Out, p.Failed, p.OutOver}
}

func apiQueuesOf(rows []*queueRow) []apiQueue {
	out := make([]apiQueue, len(rows))
	for n, q := range rows {
		out[n] = apiQueue{q.QueueLoad, q.Name, q.Lag, counted(q.Counts), apiHourOf(q.Pulse)}
		out[n].Queue = q.Name
	}
	return out
}

// counted returns a tally as a map, which is never nil.
func counted(t tally) map[fsm.Status]int64 {
	out := map[fsm.Status]int64{}
	maps.Copy(out, t.Of)
	return out
}

type apiGates struct {
	apiLacks

	Gates []gateRow        `json:"gates"`
	Keys  []engine.GateKey `json:"keys"` // of the one that the query names
}

type apiSchedules struct {
	apiLacks
	engine.SchedulePage
}

type apiWorkers struct {
	apiLacks

	Workers []workerRow `json:"workers"`
	Hidden  bool        `json:"hidden"` // the access is bound, and workers are of all
}

type apiMachines struct {
	apiLacks

	At       time.Time    `json:"at"` // of the counts
	Machines []apiVersion `json:"machines"`
}

// apiVersion is a version of a machine.
type apiVersion struct {
	Machine string               `json:"machine"`
	Version int                  `json:"version"`
	Stored  bool                 `json:"stored"` // a program has stored its definition
	Updated time.Time            `json:"updated,omitzero"`
	Counts  map[fsm.Status]int64 `json:"counts"`
}

func apiVersionsOf(rows []*machineRow) []apiVersion {
	out := make([]apiVersion, len(rows))
	for n, m := range rows {
		out[n] = apiVersion{m.Machine, m.Version, m.Stored, m.Updated, counted(m.Counts)}
	}
	return out
}

// apiMachine is a version of a machine with figures of its history.
type apiMachine struct {
	apiLacks
	engine.Drawing

	Versions []apiVersion         `json:"versions"`
	Recorded bool                 `json:"recorded"` // the history knows something of it
	Unknown  string               `json:"unknown"`  // why the history could not be asked
	Days     int                  `json:"days"`     // of the history
	Times    []engine.StepTimes   `json:"times"`
	Edges    []apiEdge            `json:"edges"`
	Failures []engine.StepFailure `json:"failures"`
	Mermaid  string               `json:"mermaid"`
	DOT      string               `json:"dot"`
	Place    *int                 `json:"place,omitempty"` // of a cluster, whose history it is
}

// apiEdge is a way that instances have taken.
type apiEdge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int64  `json:"count"`
}

func apiEdgesOf(taken map[[2]string]int64) []apiEdge {
	out := []apiEdge{}
	for way, n := range taken {
		out = append(out, apiEdge{way[0], way[1], n})
	}
	slices.SortFunc(out, func(a, b apiEdge) int { return strings.Compare(a.From+"\x00"+a.To, b.From+"\x00"+b.To) })
	return out
}

// apiInstance is an instance without its documents.
type apiInstance struct {
	shown.Instance

	FinishedAt time.Time         `json:"finished_at,omitzero"`
	Deadline   time.Time         `json:"deadline,omitzero"`
	Labels     map[string]string `json:"labels,omitempty"`
	Parent     fsm.ID            `json:"parent,omitempty"` // of one that was asked for, not in lists
	Awaits     []string          `json:"awaits,omitempty"` // likewise
	Worker     string            `json:"worker,omitempty"` // likewise; while it executes
}

func apiInstanceOf(i *fsm.RawInstance) apiInstance {
	return apiInstance{Instance: shown.InstanceOf(i), FinishedAt: i.FinishedAt, Deadline: i.Deadline, Labels: i.Labels}
}

func apiRowOf(r *ent.Instance) apiInstance {
	out := apiInstanceOf(new(shown.Snapshot(r)))
	out.Parent, out.Awaits = shown.At(r.ParentID), r.Awaits
	if r.Status == fsm.StatusExecuting { // else it is that of the last claim
		out.Worker = shown.At(r.LockedBy)
	}
	return out
}

type apiPage struct {
	apiLacks

	Instances []apiInstance `json:"instances"`
	Next      string        `json:"next"` // for the field after of the next page; "": this is the last. A page may be short, and yet have a next one
	// SearchedTo is set if a page is short though it has a next one: the page has searched up to
	// instances that were inserted at this time.
	SearchedTo time.Time `json:"searched_to,omitzero"`
}

// apiDetail is all that is shown of an instance. Where only its history is left, instance is null.
type apiDetail struct {
	Instance *apiInstance `json:"instance"`
	State    apiDocument  `json:"state"`
	Result   apiDocument  `json:"result"`
	Progress apiDocument  `json:"progress"` // what its steps have published last
	Causes   []apiCause   `json:"causes"`   // why it does not run now
	Inbox    []apiSignal  `json:"inbox"`    // its first signals that are not consumed
	More     bool         `json:"more"`     // of them
	Timeline []apiEvent   `json:"timeline"`
	Cut      bool         `json:"cut"`      // there is more in the history
	Children []apiRound   `json:"children"` // a list with the field parent has them
	// Ancestors are the parent's parents and the parent, which is the last.
	Ancestors []engine.Relative `json:"ancestors"`
	Verbs     []string          `json:"verbs"` // that apply to it now
}

type apiCause struct {
	engine.Cause

	Text string `json:"text"`
}

type apiSignal struct {
	ID         fsm.ID      `json:"id"`
	Name       string      `json:"name"`
	InsertedAt time.Time   `json:"inserted_at"`
	Payload    apiDocument `json:"payload"`
}

// apiEvent is something that happened to an instance: a row of its history, or the error of an
// attempt that the history does not have.
type apiEvent struct {
	At      time.Time     `json:"at"`
	Visit   int64         `json:"visit"`
	Kind    string        `json:"kind"`
	From    string        `json:"from,omitempty"`
	To      string        `json:"to,omitempty"`
	Attempt int           `json:"attempt"`
	Waited  time.Duration `json:"waited_ns"`
	Took    time.Duration `json:"took_ns"`
	Worker  string        `json:"worker,omitempty"`
	Failure fsm.Failure   `json:"failure,omitempty"`
	Error   string        `json:"error,omitempty"`
	Actor   string        `json:"actor,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Diff    apiDocument   `json:"diff"`
	Before  apiDocument   `json:"before"`
	After   apiDocument   `json:"after"`
}

type apiRound struct {
	Round  int64      `json:"round"` // the visit that joins them
	Status fsm.Status `json:"status"`
	Count  int64      `json:"count"`
}

type apiAudit struct {
	apiLacks

	Entries []apiEntry `json:"entries"`
	Next    time.Time  `json:"next,omitzero"` // for the field before of the next page; left out: there is no more
	Hidden  bool       `json:"hidden"`        // the access is bound, and the audit is of all
}

// apiEntry is an entry whose documents are shown as far as they may be seen.
type apiEntry struct {
	engine.AuditEntry

	Before apiDocument `json:"before"`
	After  apiDocument `json:"after"`
}
