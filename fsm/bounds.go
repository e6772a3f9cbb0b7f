package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxNameBytes bounds each name (of machines, steps, queues and signals) and each key (correlation,
// partition and dedup keys), in bytes. They stand in indexes, and Postgres bounds the entries of an
// index.
const MaxNameBytes = 512

// MaxDelay bounds delays and timeouts, and how far a time may lie in the future: 100 years.
const MaxDelay = 36_525 * 24 * time.Hour

// Bounds of labels. They are tight, since every claim of an instance copies its labels.
const (
	MaxLabels          = 16
	MaxLabelNameBytes  = 64
	MaxLabelValueBytes = 256
)

func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("empty, want 1 to %d bytes", MaxNameBytes)
	}
	return checkText(name, MaxNameBytes)
}

func checkText(name string, most int) error {
	switch {
	case len(name) > most:
		return fmt.Errorf("%d bytes, at most %d", len(name), most)
	case !utf8.ValidString(name):
		return errors.New("not valid UTF-8")
	case strings.ContainsRune(name, 0):
		return errors.New("contains a NUL byte")
	}
	return nil
}

// encodeLabels checks labels and encodes them for storage. It returns nil if there are none.
func encodeLabels(labels map[string]string) (json.RawMessage, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	if len(labels) > MaxLabels {
		return nil, fmt.Errorf("%d labels, at most %d", len(labels), MaxLabels)
	}
	for name, value := range labels {
		if name == "" {
			return nil, fmt.Errorf("a label has an empty name, want 1 to %d bytes", MaxLabelNameBytes)
		}
		if err := checkText(name, MaxLabelNameBytes); err != nil {
			return nil, fmt.Errorf("name %.80q: %w", name, err)
		}
		if err := checkText(value, MaxLabelValueBytes); err != nil {
			return nil, fmt.Errorf("value of %q: %w", name, err)
		}
	}
	return json.Marshal(labels)
}

func checkDelay(d time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%v is negative", d)
	case d > MaxDelay:
		return fmt.Errorf("%v is over 100 years", d)
	}
	return nil
}

// checkTime returns at in a form that Postgres can store. A past time means now, so a time before
// 1970 becomes 1970: Postgres refuses times from far earlier.
func checkTime(at time.Time) (time.Time, error) {
	if at.After(time.Now().Add(MaxDelay)) {
		return time.Time{}, fmt.Errorf("%d is over 100 years from now", at.Year())
	}
	if epoch := time.Unix(0, 0); at.Before(epoch) {
		return epoch.UTC(), nil
	}
	return at, nil
}
