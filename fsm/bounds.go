package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxNameBytes bounds names and keys: of machines, steps, queues and signals, correlation, partition and dedup keys. They stand in
// indexes, whose entries Postgres bounds.
const MaxNameBytes = 512

// MaxDelay bounds delays, timeouts and times from now: 100 years.
const MaxDelay = 36_525 * 24 * time.Hour

// Bounds of labels: they are copied into every claim of their instance.
const (
	MaxLabels          = 16
	MaxLabelNameBytes  = 64
	MaxLabelValueBytes = 256
)

func checkName(name string) error {
	if name == "" {
		return errors.New("empty")
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

// encodeLabels checks labels and makes them storable; nil where there are none.
func encodeLabels(labels map[string]string) (json.RawMessage, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	if len(labels) > MaxLabels {
		return nil, fmt.Errorf("%d of them, at most %d", len(labels), MaxLabels)
	}
	for name, value := range labels {
		if name == "" {
			return nil, errors.New("one has an empty name")
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

// checkTime returns at as it can be stored. A past time means now, so one before 1970 is as good as 1970: Postgres would refuse far earlier ones.
func checkTime(at time.Time) (time.Time, error) {
	if at.After(time.Now().Add(MaxDelay)) {
		return time.Time{}, fmt.Errorf("%d is over 100 years from now", at.Year())
	}
	if epoch := time.Unix(0, 0); at.Before(epoch) {
		return epoch.UTC(), nil
	}
	return at, nil
}
