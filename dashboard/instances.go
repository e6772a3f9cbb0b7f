package dashboard

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/shown"
)

// The sizes of a page of the list.
const (
	defaultRows = 50
	maxRows     = 200
	maxTrail    = 30 // how many pages back a page of the list leads
)

// instancesBody is a page of the list.
type instancesBody struct {
	Form     url.Values // the filter, as it was given
	Rows     []fsm.RawInstance
	Columns  []column // all that there are
	Statuses []fsm.Status
	Failures []fsm.Failure
	Known    sample // for suggestions
	Newer    string // links; "": there is no such page
	Older    string
	JSON     string
	CSV      string
	Clear    string
	Active   bool // there is a filter
	Verbs    []bulkVerb
	Oldest   bool
	Hidden   [][2]string // the filter again, for the form that plans
	Searched time.Time   // how far the page has searched, if it has not found enough
	Total    total

	filter engine.Filter
}

// column is what a list can show of an instance, beside its id.
type column struct {
	Name  string // in the address
	Title string
	Right bool // numbers
	Usual bool // shown unless columns are chosen
}

// columns in the order in which they are shown.
var columns = []column{
	{"status", "Status", false, true}, {"machine", "Machine and step", false, true}, {"key", "Key and labels", false, true},
	{"partition", "Partition key", false, false}, {"queue", "Queue", false, true}, {"priority", "Priority", true, false},
	{"visit", "Visit", true, false}, {"attempt", "Attempt", true, true}, {"crashes", "Crashes", true, false}, {"inserted", "Inserted", false, true},
	{"due", "Due", false, false}, {"deadline", "Deadline", false, false}, {"ended", "Ended", false, false}, {"failure", "Failed by", false, false},
	{"error", "Error", false, true},
}

// Shown are the columns that the address names, or the usual ones.
func (b *instancesBody) Shown() (all []column) {
	for _, c := range columns {
		if b.Shows(c.Name) {
			all = append(all, c)
		}
	}
	return all
}

// Shows reports whether a column is shown.
func (b *instancesBody) Shows(name string) bool {
	if chosen := slices.ContainsFunc(columns, func(c column) bool { return slices.Contains(b.Form["col"], c.Name) }); chosen {
		return slices.Contains(b.Form["col"], name)
	}
	return slices.ContainsFunc(columns, func(c column) bool { return c.Name == name && c.Usual })
}

// Has reports whether a field of the form has a value.
func (b *instancesBody) Has(field string, value any) bool {
	return slices.Contains(b.Form[field], fmt.Sprint(value))
}

// Value is the value of a field of the form.
func (b *instancesBody) Value(field string) string { return strings.Join(b.Form[field], " ") }

var failureKinds = []fsm.Failure{
	fsm.FailureDecided, fsm.FailureError, fsm.FailureExhausted, fsm.FailureCrashes, fsm.FailureCancelled, fsm.FailureDeadline,
	fsm.FailureSkipped,
}

// filterFields are the fields of the form that select.
var filterFields = []string{
	"machine", "version", "step", "queue", "status", "failure", "key", "prefix", "partition", "label", "parent", "since", "before", "error", "fingerprint",
}

// filterOf reads a filter from a form. Every list, plan and link has the same fields.
func filterOf(form url.Values, now time.Time) (f engine.Filter, err error) {
	wrong := func(field string) error {
		return &misuse{
			http.StatusBadRequest, fmt.Sprintf("%s: %q cannot be understood.", field, cut(form.Get(field), 100)), "Correct this field of the filter, or clear it.",
		}
	}
	f = engine.Filter{
		Machine: form.Get("machine"), Step: form.Get("step"), Queue: form.Get("queue"), Key: fsm.Key(form.Get("key")),
		KeyPrefix: form.Get("prefix"), PartitionKey: form.Get("partition"), ErrorText: form.Get("error"), Fingerprint: form.Get("fingerprint"),
	}
	if text := form.Get("version"); text != "" {
		if f.Version, err = strconv.Atoi(text); err != nil {
			return f, wrong("version")
		}
	}
	for _, text := range form["status"] {
		if text != "" {
			f.Status = append(f.Status, fsm.Status(text))
		}
	}
	for _, text := range form["failure"] {
		if text != "" {
			f.Failure = append(f.Failure, fsm.Failure(text))
		}
	}
	for _, text := range form["label"] {
		if text == "" {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return f, wrong("label")
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[name] = value
	}
	if text := form.Get("parent"); text != "" {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return f, wrong("parent")
		}
		f.Parent = fsm.ID(id)
	}
	if f.InsertedAfter, err = timeOf(form.Get("since"), now); err != nil {
		return f, wrong("since")
	}
	if f.InsertedBefore, err = timeOf(form.Get("before"), now); err != nil {
		return f, wrong("before")
	}
	return f, nil
}

// filter reads a filter within the bounds of the access of ctx. It may name no parent outside.
func (s *server) filter(ctx context.Context, form url.Values, now time.Time) (f engine.Filter, err error) {
	if f, err = filterOf(form, now); err != nil {
		return f, err
	}
	f.Within = accessOf(ctx).Within
	if f.Parent != 0 && !f.Within.IsZero() {
		_, err = s.row(ctx, f.Parent)
	}
	return f, err
}

// timeOf reads a time, or how long ago it was, like 90m or 2d.
func timeOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d.Abs()), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time", text)
}

func (s *server) list(r *http.Request) (string, *page, error) {
	b, err := s.listed(r)
	if err != nil {
		return "", nil, err
	}
	if b.Known, err = s.sample(r.Context()); err != nil {
		return "", nil, err
	}
	b.Total = s.total(r.Context(), b.filter)
	return "instances", &page{Title: "Instances", Section: "instances", Refresh: 1, Body: b}, nil
}

// listed reads the page of the list that a request asks for.
func (s *server) listed(r *http.Request) (*instancesBody, error) {
	ctx := r.Context()
	form := r.URL.Query()
	f, err := s.filter(ctx, form, time.Now().Truncate(s.Refresh))
	if err != nil {
		return nil, err
	}
	q := engine.Query{Filter: f, Limit: defaultRows, After: form.Get("after"), OldestFirst: form.Get("order") == "oldest"}
	if text := form.Get("rows"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxRows {
			return nil, &misuse{http.StatusBadRequest, fmt.Sprintf("rows: %q, want 1 to %d.", cut(text, 20), maxRows), "Correct this field."}
		}
	}
	got, err := s.instances(ctx, q)
	if err != nil {
		return nil, err
	}
	b := &instancesBody{
		Form: form, Rows: got.Instances, Columns: columns, Statuses: statuses, Failures: failureKinds, Oldest: q.OldestFirst, Verbs: bulkVerbs,
	}
	b.Active = slices.ContainsFunc(filterFields, func(field string) bool { return strings.Join(form[field], "") != "" })
	for _, field := range filterFields {
		for _, value := range form[field] {
			if value != "" {
				b.Hidden = append(b.Hidden, [2]string{field, value})
			}
		}
	}
	b.Searched, b.filter = got.SearchedTo, f
	b.links(got.Next, f)
	return b, nil
}

// links leads to the pages beside this one. A cursor leads forward only, so the way here is kept. A
// cursor is of exactly this filter, so ages become the times that they were.
func (b *instancesBody) links(next string, f engine.Filter) {
	base := url.Values{}
	for _, field := range append([]string{"order", "rows", "col"}, filterFields...) {
		for _, value := range b.Form[field] {
			if value != "" {
				base.Add(field, value)
			}
		}
	}
	for field, at := range map[string]time.Time{"since": f.InsertedAfter, "before": f.InsertedBefore} {
		if !at.IsZero() {
			base.Set(field, at.UTC().Format(time.RFC3339Nano))
		}
	}
	with := func(fields ...string) string {
		all := maps.Clone(base)
		for n := 0; n < len(fields); n += 2 {
			if fields[n+1] != "" {
				all.Set(fields[n], fields[n+1])
			}
		}
		return "instances?" + all.Encode()
	}
	var trail []string
	if text := b.Form.Get("trail"); text != "" {
		trail = strings.Split(text, ".")
	}
	here := b.Form.Get("after")
	if next != "" {
		way := append(slices.Clone(trail), here)
		b.Older = with("after", next, "trail", strings.Join(way[max(0, len(way)-maxTrail):], "."))
	}
	if here != "" {
		b.Newer = with()
		if n := len(trail); n > 0 {
			b.Newer = with("after", trail[n-1], "trail", strings.Join(trail[:n-1], "."))
		}
	}
	b.JSON, b.CSV = with("after", here, "format", "json"), with("after", here, "format", "csv")
	b.JSON, b.CSV = "export"+strings.TrimPrefix(b.JSON, "instances"), "export"+strings.TrimPrefix(b.CSV, "instances")
}

// exportTime bounds how long one export may take. To have its place, to read each instance and to
// send each, it has Options.Timeout.
const exportTime = 10 * time.Minute

// export sends a page of the list as a file. As JSON it has the documents of the instances: these
// are read and sent one instance after the other, as they are then, so that an export needs the
// room of one, however slow its reader is. An error on the way breaks the connection off, and so
// the file.
func (s *server) export(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.Timeout)
	defer cancel()
	held := place{of: s.turns.exports}
	defer held.leave()
	if held.take(ctx) != nil {
		s.refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("The dashboard sends %d exports at a time, and as many are under way. Try again once one has ended.", exportTurns))
		return
	}
	b, err := s.listed(r.WithContext(ctx))
	if err != nil {
		held.leave() // before anything is written to a reader that may not read
		status, text, _ := explain(err)
		s.refuse(w, r, status, text)
		return
	}
	name := []string{"instances"}
	for _, l := range lacking(r.Context()) { // the file has no other place to say so
		name = append(name, "without-place", strconv.Itoa(l.Place))
	}
	file := strings.Join(name, "-")
	h := w.Header()
	if r.FormValue("format") == "csv" {
		h.Set("Content-Type", "text/csv; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+file+`.csv"`)
		text := csvOf(b.Rows) // without documents, so a page of it is small
		held.leave()
		err = s.sendPart(w, &held, text)
	} else {
		h.Set("Content-Type", "application/json; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+file+`.json"`)
		err = s.exportJSON(w, r, b.Rows, &held)
	}
	if err != nil {
		s.log.Warn("dashboard: an export was broken off", slog.Any("error", err))
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http breaks the connection off, so that no reader takes the part for all
	}
}

// place is a place in a line, which its owner may take and leave again and again.
type place struct {
	of   turn
	done func() // nil: it is not taken
}

func (p *place) take(ctx context.Context) (err error) {
	if p.done == nil {
		p.done, err = p.of.take(ctx)
	}
	return err
}

func (p *place) leave() {
	if p.done != nil {
		p.done()
	}
	p.done = nil
}

// sendPart sends a part of an export, within Options.Timeout. If the host's middleware hides the
// deadlines of the connection, a reader may take for ever, and so the place is left first.
func (s *server) sendPart(w http.ResponseWriter, held *place, parts ...[]byte) error {
	if http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.Timeout)) != nil {
		held.leave()
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil { //nolint:gosec // JSON or CSV, sent as a file
			return err
		}
	}
	return nil
}

// exportJSON sends a list of instances with their documents. It leaves out those that are gone by
// now, or do not lie within the access any more.
func (s *server) exportJSON(w http.ResponseWriter, r *http.Request, rows []fsm.RawInstance, held *place) error {
	between := "["
	for n := range rows {
		text, err := s.exported(r, rows[n].ID, held)
		if errors.Is(err, engine.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.sendPart(w, held, []byte(between), text); err != nil {
			return err
		}
		between = ",\n"
	}
	if between == "[" {
		between = "[]"
	} else {
		between = "]"
	}
	return s.sendPart(w, held, []byte(between+"\n"))
}

// exported reads an instance with its documents.
func (s *server) exported(r *http.Request, id fsm.ID, held *place) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), s.Timeout)
	defer cancel()
	if err := held.take(ctx); err != nil {
		return nil, err
	}
	one, err := s.row(ctx, id)
	if err != nil {
		return nil, err
	}
	i := shown.Snapshot(one)
	s.redact(r, &i)
	text, err := json.Marshal(i)
	if err != nil {
		return nil, fmt.Errorf("instance %d: %w", id, err)
	}
	return text, nil
}

// redact leaves of an instance what may be seen.
func (s *server) redact(r *http.Request, i *fsm.RawInstance) {
	show := func(field string, v json.RawMessage) json.RawMessage {
		if shown := s.visible(r.Context(), i.Machine, field, s.decoded(v)); len(shown) > 0 {
			return shown
		}
		return json.RawMessage("null")
	}
	i.State, i.Result, i.Progress = show("state", i.State), show("result", i.Result), show("progress", i.Progress)
}

// csvOf makes a table of instances.
func csvOf(rows []fsm.RawInstance) []byte {
	var text bytes.Buffer
	out := csv.NewWriter(&text) // which writes to memory without errors
	_ = out.Write([]string{
		"id", "machine", "version", "step", "status", "queue", "priority", "key", "partition_key", "attempt", "paused", "failure",
		"last_error", "inserted_at", "eligible_at", "finished_at",
	})
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	for n := range rows {
		i := &rows[n]
		_ = out.Write([]string{
			strconv.FormatInt(int64(i.ID), 10), cell(i.Machine), strconv.Itoa(i.Version), cell(i.Step), string(i.Status), cell(i.Queue),
			strconv.Itoa(i.Priority), cell(string(i.Key)), cell(i.PartitionKey), strconv.Itoa(i.Attempt), strconv.FormatBool(i.Paused),
			string(i.Failure), cell(i.LastError), at(i.InsertedAt), at(i.EligibleAt), at(i.FinishedAt),
		})
	}
	out.Flush()
	return text.Bytes()
}

// cell keeps a spreadsheet from taking a text for a formula.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// query is one field of a link.
func query(name, value string) string { return url.Values{name: {value}}.Encode() }
