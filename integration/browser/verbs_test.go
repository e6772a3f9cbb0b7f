package browser

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dashboard"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Every verb goes from the form to the row, and back to the page, which says what was done.
func TestEveryVerbFromTheFormToTheRow(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	w.fill()
	ctx := t.Context()
	id, err := w.eng.Insert(ctx, checkout.New(order{Customer: "Ada"}).After(time.Hour))
	require.NoError(t, err)
	one := fmt.Sprintf("/instances/%d", id)
	get := func() fsm.RawInstance {
		t.Helper()
		i, err := w.eng.Get(ctx, id)
		require.NoError(t, err)
		return i
	}
	b := openTab(t, 1440, 900, false)
	// submit fills in the form of a verb by what a reader would type, and sends it.
	submit := func(page, form string, fields map[string]string, notice string) {
		t.Helper()
		b.open(w.URL + page)
		text, err := json.Marshal(fields)
		require.NoError(t, err)
		b.run(chromedp.Evaluate(fmt.Sprintf(`(() => {
			const button = document.querySelector('button[formaction$="' + %[1]q + '"], form[action$="' + %[1]q + '"] button');
			const form = button.form;
			for (let d = form.closest('details'); d; d = d.parentElement.closest('details')) d.open = true;
			for (const [name, value] of Object.entries(%[2]s || {})) form.elements[name].value = value;
			button.click();
		})()`, form, text), nil))
		b.until(fmt.Sprintf(`document.readyState === 'complete' && (document.querySelector('.notice') || {innerText: ''}).innerText.includes(%q)`, notice))
	}
	submit(one, "/reschedule", map[string]string{"at": "3h", "reason": "later"}, "It has a new time.")
	require.Greater(t, time.Until(get().EligibleAt), 2*time.Hour)
	submit(one, "/pause", nil, "Paused.")
	require.True(t, get().Paused)
	submit(one, "/edit", map[string]string{"state": `{"customer": "Bea", "cents": 9007199254740993}`, "reason": "a typo"}, "The state is changed.")
	require.JSONEq(t, `{"customer": "Bea", "cents": 9007199254740993}`, string(get().State))
	submit(one, "/run_now", nil, "It is due now.")
	submit(one, "/resume", nil, "Resumed.")
	require.Eventually(t, func() bool { return get().Status == fsm.StatusAwaitingSignal }, patience, 10*time.Millisecond)
	submit(one, "/signal", map[string]string{"name": "note", "payload": `{"ring": 2}`, "dedup": "once"}, "The signal is in the inbox.")
	submit(one, "/signal", map[string]string{"name": "note", "payload": `{"ring": 2}`, "dedup": "once"}, "was delivered before")
	submit(one, "/rewind", map[string]string{"step": "start", "reason": "again"}, "It goes on at that step.")
	require.Eventually(t, func() bool { return get().Status == fsm.StatusAwaitingSignal }, 20*time.Second, 10*time.Millisecond, "%+v", get())
	submit(one, "/cancel", map[string]string{"reason": "enough"}, "Cancelled.")
	require.Equal(t, fsm.FailureCancelled, get().Failure)
	submit(one, "/retry", nil, "It runs again") // and fails soon: it was cancelled while it waited for the payment

	for _, c := range []struct {
		page, form string
		fields     map[string]string
		notice     string
		is         func() bool
	}{
		{"/queues", "/pause_queue", map[string]string{"name": "mails"}, "The queue is paused", func() bool { return len(w.paused()) == 2 }},
		{"/queues", "/resume_queue", map[string]string{"name": "mails"}, "The queue is resumed", func() bool { return len(w.paused()) == 1 }},
		{"/limits?keys=mail-provider", "/close_gate", nil, "The limit is closed", func() bool { return w.closed("mail-provider") }},
		{"/limits?keys=mail-provider", "/open_gate", nil, "The limit is open", func() bool { return !w.closed("mail-provider") }},
		{"/limits?keys=mail-provider", "/set_gate", map[string]string{"places": "7"}, "The limit is changed", func() bool { return w.gates()[0].Places == 7 }},
		{"/limits?keys=mail-provider", "/drop_gate", map[string]string{"reason": "no limit"}, "The limit is deleted", func() bool { return len(w.gates()) == 1 }},
		{"/schedules", "/run_schedule", nil, "An instance of the schedule is inserted", nil},
		{"/schedules", "/pause_schedule", nil, "The schedule is paused", nil},
		{"/schedules", "/resume_schedule", nil, "The schedule is resumed", nil},
		{"/schedules", "/delete_schedule", map[string]string{"reason": "no longer"}, "The schedule is deleted", nil},
	} {
		submit(c.page, c.form, c.fields, c.notice)
		require.True(t, c.is == nil || c.is(), c.form)
	}
	entries, err := w.eng.Admin().Audit(ctx, engine.AuditQuery{Limit: 100})
	require.NoError(t, err)
	verbs := map[engine.Verb]bool{}
	for _, e := range entries.Entries {
		verbs[e.Verb] = true
	}
	for _, v := range []engine.Verb{engine.VerbReschedule, engine.VerbEdit, engine.VerbRewind, engine.VerbRetry, engine.VerbSetGate, engine.VerbRunSchedule, engine.VerbDeleteSchedule} {
		require.True(t, verbs[v], v)
	}
}

func (w *world) paused() map[string]time.Time {
	w.t.Helper()
	load, err := w.eng.Admin().Load(w.t.Context())
	require.NoError(w.t, err)
	out := map[string]time.Time{}
	for _, q := range load.Queues {
		if !q.PausedSince.IsZero() {
			out[q.Queue] = q.PausedSince
		}
	}
	return out
}

func (w *world) gates() []engine.GateStatus {
	w.t.Helper()
	all, err := w.eng.Admin().Gates(w.t.Context())
	require.NoError(w.t, err)
	return all
}

// A verb can be sent by keys alone, and a text that is not JSON is named while it is typed.
func TestAVerbByKeys(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	id := w.insert(order{}, nil)
	b := openTab(t, 1440, 900, false)
	b.open(w.URL + fmt.Sprintf("/instances/%d", id))
	b.run(chromedp.Evaluate(`document.querySelector('form[action$="/signal"]').closest('details').querySelector('summary').focus()`, nil))
	b.run(chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
	b.until(`document.activeElement.name === 'name'`)
	b.run(chromedp.KeyEvent("note"), chromedp.KeyEvent(kb.Tab))
	b.until(`document.activeElement.name === 'payload'`)
	b.run(chromedp.KeyEvent("{"))
	b.until(`document.activeElement.getAttribute('aria-invalid') === 'true' && !document.activeElement.form.checkValidity()`)
	b.run(chromedp.Evaluate(`document.activeElement.value = ''`, nil), chromedp.KeyEvent(`7`))
	b.until(`document.activeElement.form.checkValidity()`)
	b.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.until(`document.body.innerText.includes('The signal is in the inbox.')`)
}

// Links are whole: a filter, its columns and its page are the same after a reload, and back leads
// to the page before.
func TestDeepLinksReloadAndBack(t *testing.T) {
	w := newWorld(t, dashboard.Options{})
	w.fill()
	b := openTab(t, 1440, 900, false)
	const link = "/instances?machine=checkout&rows=3&col=status&col=queue&order=oldest"
	ids := `Array.from(document.querySelectorAll('main td.id'), (c) => c.innerText).join()`
	read := func() (text string) {
		b.run(chromedp.Evaluate(ids, &text))
		return text
	}
	b.open(w.URL + link)
	first := read()
	b.run(chromedp.Click(`a[rel=next]`, chromedp.ByQuery))
	b.until(ids + fmt.Sprintf(` !== %q && document.querySelector('a[rel=prev]') !== null && document.readyState === 'complete'`, first))
	second := read()
	b.run(chromedp.Reload())
	b.until(ids + fmt.Sprintf(` === %q`, second))
	b.run(chromedp.Evaluate(`history.back()`, nil))
	b.until(ids + fmt.Sprintf(` === %q`, first))
	b.run(chromedp.Evaluate(`history.forward()`, nil))
	b.until(ids + fmt.Sprintf(` === %q`, second))
	b.run(chromedp.Evaluate(`document.querySelector('a[rel=prev]').click()`, nil))
	b.until(ids + fmt.Sprintf(` === %q && document.querySelectorAll('main thead th').length === 3`, first))
}

func (w *world) closed(gate string) bool {
	w.t.Helper()
	keys, err := w.eng.Admin().GateKeys(w.t.Context(), gate)
	require.NoError(w.t, err)
	return len(keys) == 1 && keys[0].ClosedUntil.Equal(engine.GateForGood)
}
