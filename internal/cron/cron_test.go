package cron

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	require.NoError(t, err)
	return l
}

func parse(t *testing.T, text string) Expression {
	t.Helper()
	e, err := Parse(text)
	require.NoError(t, err)
	return e
}

// following returns the next n occurrences, as a clock on the wall shows them.
func following(t *testing.T, text, in, after string, n int) (list []string) {
	t.Helper()
	location := zone(t, in)
	at, err := time.ParseInLocation("2006-01-02 15:04:05", after, location)
	require.NoError(t, err)
	e := parse(t, text)
	for range n {
		next := e.Next(at, location)
		require.True(t, next.After(at), "%v after %v", next, at)
		at = next
		list = append(list, at.In(location).Format("2006-01-02 15:04:05 -0700"))
	}
	return list
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, zone, after string
		want              []string
	}{
		{"* * * * *", "UTC", "2026-01-01 00:00:00", []string{"2026-01-01 00:01:00", "2026-01-01 00:02:00"}},
		{"* * * * * *", "UTC", "2026-01-01 00:00:58", []string{"2026-01-01 00:00:59", "2026-01-01 00:01:00"}},
		{"15,45 30 8-10/2 * * *", "UTC", "2026-01-01 08:30:15", []string{"2026-01-01 08:30:45", "2026-01-01 10:30:15", "2026-01-01 10:30:45", "2026-01-02 08:30:15"}},
		{"50/5 12 * * *", "UTC", "2026-01-01 00:00:00", []string{"2026-01-01 12:50:00", "2026-01-01 12:55:00", "2026-01-02 12:50:00"}},
		{"0 0 29 2 *", "UTC", "2096-03-01 00:00:00", []string{"2104-02-29 00:00:00", "2108-02-29 00:00:00"}},
		{"0 12 L * *", "UTC", "2026-01-31 12:00:00", []string{"2026-02-28 12:00:00", "2026-03-31 12:00:00", "2026-04-30 12:00:00"}},
		{"0 0 13 * fri", "UTC", "2026-02-12 00:00:00", []string{"2026-02-13 00:00:00", "2026-02-20 00:00:00", "2026-02-27 00:00:00", "2026-03-06 00:00:00", "2026-03-13 00:00:00"}},
		{"0 0 * Jan-FEB 7", "UTC", "2026-02-20 00:00:00", []string{"2026-02-22 00:00:00", "2027-01-03 00:00:00"}},
		{"0 0 * * 5-7", "UTC", "2026-01-01 00:00:00", []string{"2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-04 00:00:00", "2026-01-09 00:00:00"}},
		{"@weekly", "UTC", "2026-01-01 00:00:00", []string{"2026-01-04 00:00:00", "2026-01-11 00:00:00"}},
		{"@hourly", "UTC", "2026-01-01 00:00:00", []string{"2026-01-01 01:00:00"}},
		{"@every 90s", "Europe/Berlin", "2026-01-01 00:00:01", []string{"2026-01-01 00:01:30", "2026-01-01 00:03:00"}},
		{"@every 1h0m0s", "UTC", "1969-12-31 22:30:00", []string{"1969-12-31 23:00:00", "1970-01-01 00:00:00", "1970-01-01 01:00:00"}},
		{"  0\t3 * *  * ", "America/New_York", "2026-07-01 04:00:00", []string{"2026-07-02 03:00:00"}},
	} {
		got := following(t, c.text, c.zone, c.after, len(c.want))
		for i := range got {
			require.Equal(t, c.want[i], got[i][:19], "%s, %d", c.text, i)
		}
	}
}

// Europe/Berlin skips from 2 to 3 on 2026-03-29 and repeats 2 to 3 on 2026-10-25; America/New_York
// skips from 2 to 3 on 2026-03-08 and repeats 1 to 2 on 2026-11-01.
func TestNextWhereTheClocksChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, zone, after string
		want              []string
	}{
		"a skipped time is due at the end of the skip": {"30 2 * * *", "Europe/Berlin", "2026-03-28 00:00:00", []string{
			"2026-03-28 02:30:00 +0100", "2026-03-29 03:00:00 +0200", "2026-03-30 02:30:00 +0200"}},
		"several skipped times are due once": {"0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-29 00:00:00", []string{
			"2026-03-29 03:00:00 +0200", "2026-03-29 03:20:00 +0200", "2026-03-29 03:40:00 +0200", "2026-03-30 02:00:00 +0200"}},
		"in New York, too": {"30 2 * * *", "America/New_York", "2026-03-07 12:00:00", []string{
			"2026-03-08 03:00:00 -0400", "2026-03-09 02:30:00 -0400"}},
		"only on the days it names": {"30 2 * * mon", "Europe/Berlin", "2026-03-28 00:00:00", []string{"2026-03-30 02:30:00 +0200"}},
		"a repeated time is due the first time": {"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00:00", []string{
			"2026-10-25 02:30:00 +0200", "2026-10-26 02:30:00 +0100"}},
		"in New York at one": {"0,30 1 * * *", "America/New_York", "2026-10-31 12:00:00", []string{
			"2026-11-01 01:00:00 -0400", "2026-11-01 01:30:00 -0400", "2026-11-02 01:00:00 -0500"}},
		"looked at from within the repetition": {"59 2 * * *", "Europe/Berlin", "2026-10-25 02:59:00", []string{"2026-10-26 02:59:00 +0100"}},
		"every hour goes by elapsed time over the skip": {"30 * * * *", "Europe/Berlin", "2026-03-29 01:00:00", []string{
			"2026-03-29 01:30:00 +0100", "2026-03-29 03:30:00 +0200"}},
		"and over the repetition": {"*/30 * * * *", "Europe/Berlin", "2026-10-25 01:30:00", []string{
			"2026-10-25 02:00:00 +0200", "2026-10-25 02:30:00 +0200", "2026-10-25 02:00:00 +0100", "2026-10-25 02:30:00 +0100", "2026-10-25 03:00:00 +0100"}},
		"every other hour": {"0 */2 * * *", "America/New_York", "2026-03-08 00:00:00", []string{
			"2026-03-08 04:00:00 -0400", "2026-03-08 06:00:00 -0400"}},
		"midnight is skipped in Beirut": {"0 0 * * *", "Asia/Beirut", "2026-03-28 12:00:00", []string{
			"2026-03-29 01:00:00 +0300", "2026-03-30 00:00:00 +0300"}},
		"half an hour in Lord Howe": {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00:00", []string{
			"2026-10-04 02:30:00 +1100", "2026-10-05 02:15:00 +1100"}},
		"a day that never was in Apia": {"0 12 30 12 *", "Pacific/Apia", "2011-12-01 00:00:00", []string{
			"2011-12-31 00:00:00 +1400", "2012-12-30 12:00:00 +1400"}},
		"an interval does not care": {"@every 1h", "Europe/Berlin", "2026-03-29 01:00:00", []string{
			"2026-03-29 03:00:00 +0200", "2026-03-29 04:00:00 +0200"}},
	} {
		require.Equal(t, c.want, following(t, c.text, c.zone, c.after, len(c.want)), name)
	}
}

// matchesSlowly says by the fields alone whether an instant is due.
func matchesSlowly(e Expression, at time.Time, in *time.Location) bool {
	due := func(wall time.Time) bool {
		return e.second.has(wall.Second()) && e.minute.has(wall.Minute()) && e.hour.has(wall.Hour()) && e.matchesDay(wall)
	}
	local := at.In(in)
	_, now := local.Zone()
	_, before := at.Add(-time.Second).In(in).Zone()
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
	if !e.hourly {
		for back := time.Second; now > before && back <= time.Duration(now-before)*time.Second; back += time.Second {
			if due(wall.Add(-back)) {
				return true
			}
		}
		_, earlier := at.Add(-time.Hour).In(in).Zone()
		if earlier > now && at.Add(-time.Duration(earlier-now)*time.Second).In(in).Format(time.DateTime) == local.Format(time.DateTime) {
			return false // the wall showed this time before
		}
	}
	return due(wall)
}

// The test goes second by second, around the changes of the clocks and elsewhere.
func TestNextMissesNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	some := func(least, most int) string {
		switch random.IntN(4) {
		case 0:
			return "*"
		case 1:
			return fmt.Sprintf("*/%d", 1+random.IntN(most))
		case 2:
			from := least + random.IntN(most-least+1)
			return fmt.Sprintf("%d-%d/%d", from, from+random.IntN(most-from+1), 1+random.IntN(5))
		default:
			return fmt.Sprintf("%d,%d", least+random.IntN(most-least+1), least+random.IntN(most-least+1))
		}
	}
	for range 60 {
		text := strings.Join([]string{some(0, 59), some(0, 59), some(0, 3), "*", "*", some(0, 6)}, " ")
		e := parse(t, text)
		for _, c := range []struct{ zone, begin string }{
			{"Europe/Berlin", "2026-03-29T00:30:00Z"}, {"Europe/Berlin", "2026-10-25T00:30:00Z"},
			{"America/New_York", "2026-03-08T06:30:00Z"}, {"America/New_York", "2026-11-01T05:30:00Z"},
			{"UTC", "2026-02-28T23:30:00Z"},
		} {
			in := zone(t, c.zone)
			begin, err := time.Parse(time.RFC3339, c.begin)
			require.NoError(t, err)
			next := e.Next(begin, in)
			for at := begin.Add(time.Second); at.Before(begin.Add(100 * time.Minute)); at = at.Add(time.Second) {
				due := next.Equal(at)
				require.Equal(t, matchesSlowly(e, at, in), due, "%s in %s at %v", text, c.zone, at.In(in))
				if due {
					next = e.Next(at, in)
				}
			}
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hourly := parse(t, "@hourly")
	list, dropped := hourly.Within(begin, begin.Add(3*time.Hour), time.UTC, 3)
	require.Equal(t, []time.Time{begin.Add(time.Hour), begin.Add(2 * time.Hour), begin.Add(3 * time.Hour)}, list)
	require.False(t, dropped)
	list, dropped = hourly.Within(begin, begin.Add(4*time.Hour), time.UTC, 3)
	require.Equal(t, []time.Time{begin.Add(2 * time.Hour), begin.Add(3 * time.Hour), begin.Add(4 * time.Hour)}, list)
	require.True(t, dropped)
	list, dropped = hourly.Within(begin, begin.Add(time.Minute), time.UTC, 3)
	require.Empty(t, list)
	require.False(t, dropped)

	list, dropped = parse(t, "@every 1s").Within(begin, begin.AddDate(30, 0, 0), time.UTC, 1000)
	require.Len(t, list, 1000)
	require.True(t, dropped)
	require.Equal(t, begin.AddDate(30, 0, 0), list[999])
	list, _ = parse(t, "@yearly").Within(begin, begin.AddDate(5, 0, 1), time.UTC, 1000)
	require.Len(t, list, 5)
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		field, reason string
		at            int
	}{
		"":                       {"", "0 fields", 1},
		"* * * *":                {"", "4 fields", 1},
		"* * * * * * *":          {"", "7 fields", 1},
		"60 * * * *":             {"minute", "60, want 0 to 59", 1},
		"0 24 * * *":             {"hour", "24, want 0 to 23", 3},
		"0 0 0 * *":              {"day", "0, want 1 to 31", 5},
		"0 0 * 13 *":             {"month", "13", 7},
		"0 0 * * 8":              {"weekday", "8, want 0 to 7", 9},
		"61 0 0 * * *":           {"second", "61", 1},
		"70/5 * * * *":           {"minute", "70", 1},
		"*/70 * * * *":           {"minute", "70, want 1 to 59", 3},
		"*/0 * * * *":            {"minute", "0, want 1 to 59", 3},
		"1-2-3 * * * *":          {"minute", `"2-3"`, 3},
		"30-20 * * * *":          {"minute", "from 30 to 20", 1},
		"1,,2 * * * *":           {"minute", "empty", 3},
		"1,2, * * * *":           {"minute", "empty", 5},
		"0,99 * * * *":           {"minute", "99", 3},
		"-5 * * * *":             {"minute", "empty", 1},
		"+5 * * * *":             {"minute", `"+5"`, 1},
		"*5 * * * *":             {"minute", `"*5"`, 1},
		"0 3 * * mondays":        {"weekday", `"mondays"`, 9},
		"0 0 40W * *":            {"day", `"40W"`, 5},
		"0 0 30 2 *":             {"day", "never comes", 5},
		"0 0 31 4,6,9,11 *":      {"day", "never comes", 5},
		"@reboot":                {"", "not a nickname", 1},
		"@every":                 {"", "not a nickname", 1},
		"@every 500ms":           {"interval", "500ms, at least 1s", 8},
		"@every 1500ms":          {"interval", "whole seconds", 8},
		"@every -1s":             {"interval", "at least", 8},
		"@every 1000000h":        {"interval", "100 years", 8},
		"@every day":             {"interval", "not a duration", 8},
		"0 0 \x00 * *":           {"day", `"\x00"`, 5},
		strings.Repeat("*", 513): {"", "513 bytes, at most 512", 513},
	} {
		_, err := Parse(text)
		wrong, ok := errors.AsType[*Error](err)
		require.True(t, ok, "%q: %v", text, err)
		require.Equal(t, want.field, wrong.Field, text)
		require.Equal(t, want.at, wrong.Position, text)
		require.ErrorContains(t, err, want.reason)
		require.ErrorContains(t, err, fmt.Sprintf("position %d", want.at))
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"* * * * *", "*/5 1-3,7 L jan-mar mon", "@every 30s", "0 0 29 2 *", "1 2 3 4 5 6"} {
		f.Add(seed)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Skip(err)
	}
	after := time.Date(2026, 3, 29, 0, 59, 59, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			wrong, ok := errors.AsType[*Error](err)
			if !ok || wrong.Position < 1 || wrong.Position > len(text)+1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if next := e.Next(after, berlin); !next.After(after) {
			t.Fatalf("%q: %v", text, next)
		}
	})
}
