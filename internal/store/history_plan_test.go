package store_test

import "github.com/gendurable/gendurable/internal/store"

// recordedOutcomes makes the history keep outcomes that prepare returns.
func recordedOutcomes(prepare func(explained) any) func(explained) any {
	return func(e explained) any {
		entries := prepare(e).([]store.Entry)
		for i := range entries {
			entries[i].Record = &store.Record{}
		}
		return entries
	}
}
