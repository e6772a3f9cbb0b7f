package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
)

// model is a service that embeds texts, and keeps what it was asked for.
type model struct {
	mu       sync.Mutex
	requests []string // the model's name, and the number of texts
	stored   map[fsm.ID][]float32
}

func (m *model) embed(_ context.Context, name string, texts []string) ([][]float32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, fmt.Sprint(name, " ", len(texts)))
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		switch {
		case text == "bomb":
			return nil, errors.New("the request is malformed")
		case text != "":
			vectors[i] = []float32{float32(len(text))}
		}
	}
	return vectors, nil
}

func (m *model) store(_ context.Context, id fsm.ID, vector []float32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored[id] = vector
	return nil
}

func TestDocumentsAreEmbeddedTogether(t *testing.T) {
	t.Parallel()
	m := &model{stored: map[fsm.ID][]float32{}}
	kit := kitWith(t, `SELECT 1`, embedding{m.embed, m.store}.definition())
	var specs []fsm.Spec
	for i := range 250 {
		specs = append(specs, Documents.New(Document{Model: []string{"large", "small"}[i%5/4], Text: strings.Repeat("x", 1+i)}))
	}
	_, err := kit.Engine.InsertMany(t.Context(), specs)
	require.NoError(t, err)
	refused := insert(t, kit, Documents.New(Document{Model: "small"}))
	d := durabletest.RequireDrain(t, kit)
	require.Equal(t, []string{"large 100", "small 51", "large 100"}, m.requests, "each as large as it may be, the longest due first")
	require.Equal(t, 251+250, d.Steps)
	require.Equal(t, []int{250, 1}, []int{d.Done, d.Failed})
	require.Len(t, m.stored, 250)
	durabletest.RequireFailed(t, kit, refused, fsm.FailureError, "refused by the model")
}

// A document for which every request fails that contains it fails alone in the end.
func TestABadDocumentFailsAlone(t *testing.T) {
	t.Parallel()
	m := &model{stored: map[fsm.ID][]float32{}}
	kit := kitWith(t, `SELECT 1`, embedding{m.embed, m.store}.definition())
	var specs []fsm.Spec
	for i := range 100 {
		specs = append(specs, Documents.New(Document{Model: "large", Text: map[bool]string{false: "fine", true: "bomb"}[i == 37]}))
	}
	inserted, err := kit.Engine.InsertMany(t.Context(), specs)
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.Equal(t, []string{"large 100"}, m.requests)
	durabletest.RequireAdvance(t, kit, 30*24*time.Hour)
	require.Len(t, m.stored, 99)
	durabletest.RequireFailed(t, kit, inserted[37].ID, fsm.FailureExhausted, "the request is malformed")
	require.LessOrEqual(t, len(m.requests), 60)
	require.Equal(t, "large 1", slices.Max(m.requests[len(m.requests)-10:]), "alone")
	attempts, err := kit.Engine.Errors(t.Context(), inserted[36].ID)
	require.NoError(t, err)
	require.LessOrEqual(t, len(attempts), 3)
}

func TestTheTextsGoOutInOrder(t *testing.T) {
	t.Parallel()
	m := &model{}
	outcomes, errs := durabletest.RunBatch(t.Context(), embedding{m.embed, m.store}.definition(), "start",
		[]durabletest.Visit{{State: Document{Text: "a"}}, {}, {State: Document{Text: "ccc"}}})
	var last Document
	require.NoError(t, errors.Join(errs[0], errs[2], outcomes[2].DecodeState(&last)))
	require.EqualError(t, errs[1], "refused by the model")
	require.Equal(t, Document{Text: "ccc", Vector: []float32{3}}, last)
}
