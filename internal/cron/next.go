package cron

import "time"

// horizon bounds the search: an expression that Parse accepted has an occurrence within it.
const horizon = 10 // years

// Next returns the first occurrence after a time, in a zone. The result is in UTC, on a whole
// second. An interval counts from 1970-01-01 00:00 UTC, so that all processes agree on it.
//
// Where the zone's clocks change, an expression whose hour begins with * goes by elapsed time. It
// is due whenever a clock on the wall shows a time that matches: twice in a repeated hour, never in
// a skipped one. Any other expression is due once for each day and time that it names: in a
// repeated hour the first time; all times of a skipped hour together, at its end.
func (e Expression) Next(after time.Time, zone *time.Location) time.Time {
	after = after.UTC().Truncate(time.Second)
	if e.interval > 0 {
		seconds := int64(e.interval / time.Second)
		n := after.Unix() / seconds
		if after.Unix()%seconds < 0 {
			n--
		}
		return time.Unix((n+1)*seconds, 0).UTC()
	}
	at := after.Add(time.Second)
	// Within a period of constant offset the wall's clock runs steadily; its time is treated as UTC.
	for limit := at.AddDate(horizon, 0, 0); at.Before(limit); {
		local := at.In(zone)
		begin, end := local.ZoneBounds()
		if end.IsZero() || end.After(limit) {
			end = limit
		}
		offset := offsetOf(local)
		from := at.Add(offset)
		if !e.hourly && !begin.IsZero() {
			before := begin.Add(offsetOf(begin.Add(-time.Second).In(zone))).UTC() // the wall's time at begin, if the clocks had not changed
			if at.Equal(begin) {
				if _, skipped := e.matches(before, begin.Add(offset).UTC()); skipped {
					return at
				}
			}
			if from.Before(before) { // the wall has shown these times already
				from = before
			}
		}
		if wall, ok := e.matches(from, end.Add(offset).UTC()); ok {
			return wall.Add(-offset)
		}
		at = end.UTC()
	}
	return time.Time{}
}

// Within returns the occurrences after one time and up to another, in ascending order. If there are
// more than most, it returns the most recent ones, and dropped is true.
func (e Expression) Within(after, until time.Time, zone *time.Location, most int) (list []time.Time, dropped bool) {
	// The search starts at the end and goes back ever further: downtime may have been long, and only
	// the newest occurrences count.
	for span := time.Hour; ; span *= 2 {
		from := until.Add(-span)
		whole := !from.After(after)
		if whole {
			from = after
		}
		list = list[:0]
		for at := e.Next(from, zone); !at.IsZero() && !at.After(until); at = e.Next(at, zone) {
			list = append(list, at)
		}
		if len(list) > most {
			return list[len(list)-most:], true
		}
		if whole {
			return list, false
		}
		if len(list) == most {
			return list, e.Next(after, zone).Before(list[0])
		}
	}
}

func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// matches returns the first time that matches, at or after one and before another. Both are times
// of a clock on the wall, written as UTC.
func (e Expression) matches(from, before time.Time) (time.Time, bool) {
	for from.Before(before) {
		if !e.matchesDay(from) {
			from = time.Date(from.Year(), from.Month(), from.Day()+1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if at, ok := e.matchesClock(from); ok {
			return at, at.Before(before)
		}
		from = time.Date(from.Year(), from.Month(), from.Day()+1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}, false
}

func (e Expression) matchesDay(t time.Time) bool {
	if !e.month.has(int(t.Month())) {
		return false
	}
	day := e.day.has(t.Day()) || e.last && t.AddDate(0, 0, 1).Day() == 1
	weekday := e.weekday.has(int(t.Weekday()))
	if e.anyDay || e.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

// matchesClock returns the first time of t's day that matches, at or after t.
func (e Expression) matchesClock(t time.Time) (time.Time, bool) {
	hour, minute, second := t.Clock()
	if h := e.hour.from(hour); h != hour {
		hour, minute, second = h, 0, 0
	}
	for hour >= 0 {
		if m := e.minute.from(minute); m != minute {
			minute, second = m, 0
		}
		for minute >= 0 {
			if s := e.second.from(second); s >= 0 {
				return time.Date(t.Year(), t.Month(), t.Day(), hour, minute, s, 0, time.UTC), true
			}
			minute, second = e.minute.from(minute+1), 0
		}
		hour, minute, second = e.hour.from(hour+1), 0, 0
	}
	return time.Time{}, false
}
