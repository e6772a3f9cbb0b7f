package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// maxFigure is how many steps a drawing may have; machines with more are shown as a table only.
const maxFigure = 150

// The measures of a drawing, in the units of its view box.
const (
	boxWidth, boxHeight = 208, 66
	laneWidth           = 26 // of an edge that passes a layer
	gapX, gapY          = 34, 58
	margin              = 26
)

// figure is a machine, drawn in layers from top to bottom: each step stands below those that lead
// to it, except where the machine loops.
type figure struct {
	Width, Height int
	Boxes         []box
	Arrows        []arrow
}

// box is a step.
type box struct {
	engine.StepCounts

	X, Y    int
	Name    string // as it fits
	Initial bool
	Note    string
	Chips   []chip
	Path    string
}

// Label tells those who do not see the box what it shows.
func (b box) Label() string {
	var text strings.Builder
	text.WriteString("step " + b.Step)
	for _, c := range b.Chips {
		text.WriteString(", " + grouped(c.Count) + " " + strings.ReplaceAll(string(c.Status), "_", " "))
	}
	return text.String()
}

// chip is how many instances of a status are at a step.
type chip struct {
	Status fsm.Status
	Count  int64
	X      int
	Width  int
}

// arrow is a way from a step to another.
type arrow struct {
	From, To string
	D        string // the path
	Head     string // the triangle at its end
	Weight   string // its width
	Kind     string // "declared", "taken", "never" or "seen": taken, though not declared
	Count    int64
	X, Y     int // where the count stands
}

// statuses in the order in which they are shown.
var statuses = []fsm.Status{
	fsm.StatusRunnable, fsm.StatusExecuting, fsm.StatusAwaitingSignal, fsm.StatusAwaitingChildren, fsm.StatusDone, fsm.StatusFailed,
}

// vertex is a step in its layer, or a lane: the place at which an edge passes a layer.
type vertex struct {
	step     int // -1: a lane
	layer    int
	x        float64 // the middle
	up, down []int   // vertices of the layers beside its own
}

func (v *vertex) width() float64 {
	if v.step < 0 {
		return laneWidth
	}
	return boxWidth
}

// line is an edge of the layout. It leads from a higher layer to a lower one, whichever way the
// machine goes.
type line struct {
	from, to int // steps, as the machine goes
	back     bool
	via      []int // vertices, from the top
}

// draw lays a machine out. Taken are the ways that the history has seen, by from and to; nil: there
// is no history to tell.
func draw(d engine.Drawing, taken map[[2]string]int64) *figure {
	names := map[string]int{}
	for n, step := range d.Steps {
		names[step.Step] = n
	}
	if len(names) == 0 || len(names) > maxFigure {
		return nil
	}
	l := newLayout(d, names, taken)
	l.assignLayers()
	l.placeLanes()
	l.order()
	l.spread()
	return l.figure(d, taken)
}

type layout struct {
	names    []string
	initial  int
	lines    []line
	declared map[[2]string]bool
	layers   [][]int // vertices, from left to right
	vertices []vertex
}

func newLayout(d engine.Drawing, names map[string]int, taken map[[2]string]int64) *layout {
	l := &layout{declared: map[[2]string]bool{}, vertices: make([]vertex, len(d.Steps))}
	for n, step := range d.Steps {
		l.names = append(l.names, step.Step)
		l.vertices[n].step = n
	}
	l.initial = names[d.Graph.Initial]
	known := map[[2]int]bool{}
	add := func(from, to string) {
		a, fromThere := names[from]
		b, toThere := names[to]
		if fromThere && toThere && !known[[2]int{a, b}] {
			known[[2]int{a, b}] = true
			l.lines = append(l.lines, line{from: a, to: b})
		}
	}
	for _, step := range d.Graph.Steps {
		for _, to := range step.To {
			l.declared[[2]string{step.Name, to}] = true
			add(step.Name, to)
		}
	}
	ways := make([][2]string, 0, len(taken))
	for way := range taken {
		ways = append(ways, way)
	}
	slices.SortFunc(ways, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, way := range ways {
		if way[0] != way[1] || l.declared[way] {
			add(way[0], way[1])
		}
	}
	return l
}

// assignLayers turns lines that close a loop around, and puts each step one layer below the lowest
// of those that lead to it.
func (l *layout) assignLayers() {
	out := make([][]int, len(l.names))
	for n, e := range l.lines {
		if e.from != e.to {
			out[e.from] = append(out[e.from], n)
		}
	}
	const unseen, open, closed = 0, 1, 2
	state := make([]int, len(l.names))
	var sorted []int // each step before those that lead to it
	var visit func(int)
	visit = func(step int) {
		state[step] = open
		for _, n := range out[step] {
			switch state[l.lines[n].to] {
			case unseen:
				visit(l.lines[n].to)
			case open:
				l.lines[n].back = true
			}
		}
		state[step] = closed
		sorted = append(sorted, step)
	}
	for n := range l.names {
		step := (l.initial + n) % len(l.names)
		if state[step] == unseen {
			visit(step)
		}
	}
	for _, step := range slices.Backward(sorted) {
		for _, e := range l.lines {
			if top, bottom := e.ends(); top == step && bottom != step {
				l.vertices[bottom].layer = max(l.vertices[bottom].layer, l.vertices[step].layer+1)
			}
		}
	}
}

// ends of a line in the layout.
func (e *line) ends() (top, bottom int) {
	if e.back {
		return e.to, e.from
	}
	return e.from, e.to
}

// placeLanes gives each line a vertex in every layer that it passes.
func (l *layout) placeLanes() {
	depth := 0
	for _, v := range l.vertices {
		depth = max(depth, v.layer)
	}
	l.layers = make([][]int, depth+1)
	for n := range l.names {
		v := l.vertices[n]
		l.layers[v.layer] = append(l.layers[v.layer], n)
	}
	for n := range l.lines {
		e := &l.lines[n]
		top, bottom := e.ends()
		if top == bottom {
			continue
		}
		e.via = []int{top}
		for layer := l.vertices[top].layer + 1; layer < l.vertices[bottom].layer; layer++ {
			lane := len(l.vertices)
			l.vertices = append(l.vertices, vertex{step: -1, layer: layer})
			l.layers[layer] = append(l.layers[layer], lane)
			e.via = append(e.via, lane)
		}
		e.via = append(e.via, bottom)
		for k := 1; k < len(e.via); k++ {
			a, b := e.via[k-1], e.via[k]
			l.vertices[a].down = append(l.vertices[a].down, b)
			l.vertices[b].up = append(l.vertices[b].up, a)
		}
	}
}

// order puts the vertices of each layer near the middle of what they are joined to, from above and
// from below in turn, so that few lines cross.
func (l *layout) order() {
	place := make([]float64, len(l.vertices))
	number := func(layer []int) {
		for n, v := range layer {
			place[v] = float64(n) - float64(len(layer))/2
		}
	}
	for _, layer := range l.layers {
		number(layer)
	}
	for sweep := range 12 {
		for n := range l.layers {
			layer := l.layers[n]
			if sweep%2 == 1 {
				layer = l.layers[len(l.layers)-1-n]
			}
			want := map[int]float64{}
			for _, v := range layer {
				near := l.vertices[v].up
				if sweep%2 == 1 {
					near = l.vertices[v].down
				}
				want[v] = place[v]
				if len(near) > 0 {
					sum := 0.0
					for _, other := range near {
						sum += place[other]
					}
					want[v] = sum / float64(len(near))
				}
			}
			slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(want[a], want[b]) })
			number(layer)
		}
	}
}

// spread gives each vertex its place from left to right: as near to the middle of what it is joined
// to as its neighbours leave room for.
func (l *layout) spread() {
	for _, layer := range l.layers {
		x := 0.0
		for _, v := range layer {
			l.vertices[v].x = x + l.vertices[v].width()/2
			x += l.vertices[v].width() + gapX
		}
		for _, v := range layer {
			l.vertices[v].x -= (x - gapX) / 2
		}
	}
	for sweep := range 24 {
		for n := range l.layers {
			layer := l.layers[n]
			if sweep%2 == 1 {
				layer = l.layers[len(l.layers)-1-n]
			}
			want := make([]float64, len(layer))
			for k, v := range layer {
				near := slices.Concat(l.vertices[v].up, l.vertices[v].down)
				want[k] = l.vertices[v].x
				if len(near) > 0 {
					sum := 0.0
					for _, other := range near {
						sum += l.vertices[other].x
					}
					want[k] = sum / float64(len(near))
				}
			}
			l.apart(layer, want)
		}
	}
}

// apart moves vertices to their wanted places, such that none overlap: the mean of moving them out
// of the way to the right and to the left.
func (l *layout) apart(layer []int, want []float64) {
	room := func(k int) float64 {
		return (l.vertices[layer[k-1]].width()+l.vertices[layer[k]].width())/2 + gapX
	}
	right, left := slices.Clone(want), slices.Clone(want)
	for k := 1; k < len(layer); k++ {
		right[k] = max(right[k], right[k-1]+room(k))
	}
	for k := len(layer) - 1; k > 0; k-- {
		left[k-1] = min(left[k-1], left[k]-room(k))
	}
	for k, v := range layer {
		l.vertices[v].x = (right[k] + left[k]) / 2
	}
}

// figure turns places into boxes and paths.
func (l *layout) figure(d engine.Drawing, taken map[[2]string]int64) *figure {
	least, most := math.Inf(1), math.Inf(-1)
	for n := range l.vertices {
		v := &l.vertices[n]
		least, most = min(least, v.x-v.width()/2), max(most, v.x+v.width()/2)
	}
	for n := range l.vertices {
		l.vertices[n].x += margin - least
	}
	out := &figure{
		Width:  int(most-least) + 2*margin,
		Height: len(l.layers)*boxHeight + (len(l.layers)-1)*gapY + 2*margin,
	}
	for n, step := range d.Steps {
		v := &l.vertices[n]
		b := box{
			StepCounts: step, X: int(v.x) - boxWidth/2, Y: l.top(n), Name: cut(step.Step, 25),
			Initial: d.Graph.Initial == step.Step, Chips: chips(step.Counts),
		}
		for _, s := range d.Graph.Steps {
			if s.Name != step.Step {
				continue
			}
			switch {
			case s.Batch > 0:
				b.Note = fmt.Sprintf("batches of %d", s.Batch)
			case s.Anywhere:
				b.Note = "may lead anywhere"
			}
		}
		if !step.Defined && d.Stored {
			b.Note = "not in the definition"
		}
		out.Boxes = append(out.Boxes, b)
	}
	for n := range l.lines {
		out.Arrows = append(out.Arrows, l.arrow(&l.lines[n], taken))
	}
	return out
}

func (l *layout) top(v int) int { return margin + l.vertices[v].layer*(boxHeight+gapY) }

// port is where a line meets a box: lines share its edge, in the order of their ends.
func (l *layout) port(v, toward int, below bool) float64 {
	near := slices.Clone(l.vertices[v].up)
	if below {
		near = slices.Clone(l.vertices[v].down)
	}
	slices.SortStableFunc(near, func(a, b int) int { return cmp.Compare(l.vertices[a].x, l.vertices[b].x) })
	step := min(30, boxWidth*0.7/float64(max(1, len(near))))
	return l.vertices[v].x + (float64(slices.Index(near, toward))-float64(len(near)-1)/2)*step
}

// arrow makes the path of a line, whose head is where the machine goes.
func (l *layout) arrow(e *line, taken map[[2]string]int64) arrow {
	way := [2]string{l.names[e.from], l.names[e.to]}
	a := arrow{From: way[0], To: way[1], Kind: "declared", Weight: "1.4"}
	if taken != nil {
		a.Count = taken[way]
		a.Kind = "never"
		if a.Count > 0 {
			a.Kind = "taken"
			a.Weight = fmt.Sprintf("%.1f", 1.4+min(4, math.Log10(float64(a.Count))))
		}
		if !l.declared[way] {
			a.Kind = "seen"
		}
	}
	if e.from == e.to { // beside the box
		x, y := l.vertices[e.from].x+boxWidth/2, float64(l.top(e.from))
		a.D = fmt.Sprintf("M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f", x, y+20, x+28, y+12, x+28, y+56, x+7, y+48)
		a.Head = head(x+1, y+48, 1, 0)
		a.X, a.Y = int(x)+22, int(y)+10
		return a
	}
	top, bottom := e.via[0], e.via[len(e.via)-1]
	x, y := l.port(top, e.via[1], true), float64(l.top(top)+boxHeight)
	points := [][2]float64{{x, y}}
	for _, lane := range e.via[1 : len(e.via)-1] {
		at := float64(l.top(lane))
		points = append(points, [2]float64{l.vertices[lane].x, at}, [2]float64{l.vertices[lane].x, at + boxHeight})
	}
	endX, endY := l.port(bottom, e.via[len(e.via)-2], false), float64(l.top(bottom))
	points = append(points, [2]float64{endX, endY})
	first, last := &points[0], &points[len(points)-1]
	if e.back {
		a.Head = head(first[0], first[1]+1, 0, 1)
		first[1] += 7
	} else {
		a.Head = head(last[0], last[1]-1, 0, -1)
		last[1] -= 7
	}
	a.D = curve(points)
	a.X, a.Y = int((points[0][0]+points[1][0])/2)+6, int((points[0][1]+points[1][1])/2)+4
	return a
}

func curve(points [][2]float64) string {
	var d strings.Builder
	fmt.Fprintf(&d, "M%.0f %.0f", points[0][0], points[0][1])
	for n := 1; n < len(points); n++ {
		p, q := points[n-1], points[n]
		middle := (p[1] + q[1]) / 2
		fmt.Fprintf(&d, "C%.0f %.0f %.0f %.0f %.0f %.0f", p[0], middle, q[0], middle, q[0], q[1])
	}
	return d.String()
}

// head is a triangle with its tip at x and y, which comes from the direction dx, dy.
func head(x, y, dx, dy float64) string {
	const length, half = 8, 4
	bx, by := x+dx*length, y+dy*length
	return fmt.Sprintf("M%.1f %.1fL%.1f %.1fL%.1f %.1fZ", x, y, bx+dy*half, by+dx*half, bx-dy*half, by-dx*half)
}

// chips are laid side by side, as many as fit.
func chips(counts map[fsm.Status]int64) (all []chip) {
	x := 12
	for _, status := range statuses {
		if counts[status] == 0 {
			continue
		}
		width := 22 + 7*len(grouped(counts[status]))
		if x+width > boxWidth-6 {
			break
		}
		all = append(all, chip{status, counts[status], x, width})
		x += width + 5
	}
	return all
}

// cut shortens a text to so many characters.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
