package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wellFormed returns the texts of an SVG.
func wellFormed(t *testing.T, svg string) (texts []string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err, svg)
		if data, ok := token.(xml.CharData); ok && strings.TrimSpace(string(data)) != "" {
			texts = append(texts, string(data))
		}
	}
}

func TestBars(t *testing.T) {
	svg := Bars("P1 <drain>", "jobs/s", []Bar{{"ours", 40_000, 30_000, 50_000}, {"river", 20_000, 19_000, 21_000}})
	require.Equal(t, []string{"P1 <drain>", "P1 <drain>", "ours", "40k jobs/s", "river", "20k jobs/s"}, wellFormed(t, svg))
	require.Contains(t, svg, `width="368.0" height="20"`, "four fifths of the room for the longest")
	require.Contains(t, svg, `width="184.0" height="20"`)
}

func TestLines(t *testing.T) {
	svg := Lines("size", "min", "MB", []Line{{"table", []float64{0, 1, 2}, []float64{0, 50, 100}}, {"indexes", []float64{0, 2}, []float64{10, 10}}})
	require.Subset(t, wellFormed(t, svg), []string{"size", "table", "indexes", "min", "MB", "0", "100", "2"})
	require.Contains(t, svg, `points="70.0,280.0 385.0,171.0 700.0,62.0"`)
}

func TestNothingToDraw(t *testing.T) {
	wellFormed(t, Bars("", "", nil))
	wellFormed(t, Lines("", "", "", nil))
	wellFormed(t, Lines("", "", "", []Line{{"flat", []float64{0, 1}, []float64{0, 0}}}))
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.42: "0.42", 17_260: "17.3k", 1_000_000: "1M", 250: "250", 33.1: "33.1", -2000: "-2k"} {
		require.Equal(t, want, Number(v))
	}
}
