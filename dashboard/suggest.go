package dashboard

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

const (
	// sampleRows is of how many of the newest instances names are suggested.
	sampleRows = 200
	// maxSuggested is how many names of a kind are suggested.
	maxSuggested = 300
)

// sample is what the newest instances have: names to suggest. It costs a page of the list, for all
// who look within a minute.
type sample struct {
	Machines, Steps, Queues, Labels []string
}

// sample reads what of the newest instances the access of ctx may see.
func (s *server) sample(ctx context.Context) (out sample, err error) {
	got, err := s.page(ctx, "newest", historyAge, engine.Query{Limit: sampleRows}, func(got engine.Page, err error) (engine.Page, error) {
		for n := range got.Instances {
			i := &got.Instances[n] // nothing else is needed
			got.Instances[n] = fsm.RawInstance{Machine: i.Machine, Step: i.Step, Queue: i.Queue, Labels: i.Labels}
		}
		return got, err
	})
	newest := got.Instances
	if err != nil {
		return out, err
	}
	machines, steps, queues, labels := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for n := range newest {
		i := &newest[n]
		machines[i.Machine], steps[i.Step], queues[i.Queue] = true, true, true
		for name, value := range i.Labels {
			labels[name+"="+value] = true
		}
	}
	names := func(of map[string]bool) []string {
		all := slices.Sorted(maps.Keys(of))
		return all[:min(len(all), maxSuggested)]
	}
	return sample{names(machines), names(steps), names(queues), names(labels)}, nil
}

// suggestion is a place that the palette goes to.
type suggestion struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
	Path string `json:"path"` // relative to the overview
}

// suggest sends the names that the palette offers: of machines, queues and labels.
func (s *server) suggest(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	known, err := s.sample(ctx)
	if err != nil {
		status, text, _ := explain(err)
		s.refuse(w, r, status, text)
		return
	}
	stored, err := s.definitions(ctx)
	if err != nil {
		stored = nil // the newest instances name most of them
	}
	machines := map[string]bool{}
	for _, d := range stored {
		if access := accessOf(ctx); access.defines(d.Machine) {
			machines[d.Machine] = true
		}
	}
	for _, name := range known.Machines {
		machines[name] = true
	}
	all := []suggestion{}
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		all = append(all, suggestion{"machine", name, "machine?" + query("name", name)})
	}
	for _, name := range known.Queues {
		all = append(all, suggestion{"queue", name, "instances?" + query("queue", name)})
	}
	for _, step := range known.Steps {
		all = append(all, suggestion{"step", step, "instances?" + query("step", step)})
	}
	for _, label := range known.Labels {
		all = append(all, suggestion{"label", label, "instances?" + query("label", label)})
	}
	for _, status := range statuses {
		all = append(all, suggestion{"status", string(status), "instances?" + url.Values{"status": {string(status)}}.Encode()})
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(all) //nolint:errchkjson // who asked may have gone
}
