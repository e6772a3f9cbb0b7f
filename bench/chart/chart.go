// Package chart draws figures as SVG. They have only text and rectangles, on white, for pages in
// any theme.
package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

var colours = []string{"#1f6feb", "#d1730a", "#8250df", "#57606a", "#2da44e", "#cf222e"}

const (
	width   = 720
	font    = `font-family="system-ui, sans-serif" font-size="13" fill="#1f2328"`
	faint   = "#d0d7de"
	barStep = 30
)

// Bar is a median with its range.
type Bar struct {
	Label            string
	Median, Min, Max float64
}

// Bars draws bars one below the other, from zero.
func Bars(title, unit string, bars []Bar) string {
	const left, right, top = 150, 110, 44
	height := top + barStep*len(bars) + 16
	most := 0.0
	for _, b := range bars {
		most = max(most, b.Max)
	}
	if most == 0 {
		most = 1
	}
	x := func(v float64) float64 { return left + v/most*(width-left-right) }
	var s strings.Builder
	open(&s, title, height)
	system := func(b Bar) string { name, _, _ := strings.Cut(b.Label, ", "); return name }
	for i, b := range bars {
		colour := colours[3]
		if system(b) == system(bars[0]) {
			colour = colours[0]
		}
		y := float64(top + barStep*i)
		text(&s, left-10, y+15, "end", b.Label)
		fmt.Fprintf(&s, `<rect x="%d" y="%.1f" width="%.1f" height="20" fill="%s"/>`+"\n", left, y, x(b.Median)-left, colour)
		fmt.Fprintf(&s, `<path d="M%.1f %.1fH%.1f" stroke="#1f2328"/>`+"\n", x(b.Min), y+10, x(b.Max))
		text(&s, x(b.Max)+8, y+15, "start", Number(b.Median)+" "+unit)
	}
	return s.String() + "</svg>\n"
}

// Line is a series over time.
type Line struct {
	Name string
	X, Y []float64
}

// Lines draws series over the same axes, from zero.
func Lines(title, xUnit, yUnit string, lines []Line) string {
	const left, right, top, height, bottom = 70, 20, 62, 320, 40
	xMost, yMost := 0.0, 0.0
	for _, l := range lines {
		for i := range l.X {
			xMost, yMost = max(xMost, l.X[i]), max(yMost, l.Y[i])
		}
	}
	xStep, yStep := step(xMost), step(yMost)
	yMost = math.Ceil(yMost/yStep) * yStep
	if xMost == 0 {
		xMost = 1
	}
	x := func(v float64) float64 { return left + v/xMost*(width-left-right) }
	y := func(v float64) float64 { return height - bottom - v/yMost*(height-bottom-top) }
	var s strings.Builder
	open(&s, title, height)
	for v := 0.0; v <= yMost*1.0001; v += yStep {
		fmt.Fprintf(&s, `<path d="M%d %.1fH%d" stroke="%s"/>`+"\n", left, y(v), width-right, faint)
		text(&s, left-8, y(v)+4, "end", Number(v))
	}
	for v := 0.0; v <= xMost*1.0001; v += xStep {
		text(&s, x(v), height-bottom+18, "middle", Number(v))
	}
	text(&s, left-8, 50, "end", yUnit)
	text(&s, width-right, height-6, "end", xUnit)
	for i, l := range lines {
		colour := colours[i%len(colours)]
		var points strings.Builder
		for j := range l.X {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(l.X[j]), y(l.Y[j]))
		}
		fmt.Fprintf(&s, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.TrimSpace(points.String()), colour)
		at := float64(left + 10 + i*160)
		fmt.Fprintf(&s, `<rect x="%.1f" y="40" width="12" height="12" fill="%s"/>`+"\n", at, colour)
		text(&s, at+18, 50, "start", l.Name)
	}
	return s.String() + "</svg>\n"
}

func open(s *strings.Builder, title string, height int) {
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(s, "<title>%s</title>\n"+`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", html.EscapeString(title), width, height)
	fmt.Fprintf(s, `<text x="16" y="24" %s font-weight="600">%s</text>`+"\n", font, html.EscapeString(title))
}

func text(s *strings.Builder, x, y float64, anchor, what string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, font, html.EscapeString(what))
}

// step returns the distance between the marks of an axis: one, two or five times a power of ten,
// for four to ten marks.
func step(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, s := range []float64{0.1, 0.2, 0.5} {
		if most/(s*power) <= 10 {
			return s * power
		}
	}
	return power
}

// Number returns a number as people write it: 17.3k, 0.42.
func Number(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return digits(v/unit.size) + unit.name
		}
	}
	return digits(v)
}

// digits writes three significant digits, without trailing zeros.
func digits(v float64) string {
	places := 2
	if math.Abs(v) >= 100 {
		places = 0
	} else if math.Abs(v) >= 10 {
		places = 1
	}
	out := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(out, ".") {
		out = strings.TrimRight(strings.TrimRight(out, "0"), ".")
	}
	return out
}
