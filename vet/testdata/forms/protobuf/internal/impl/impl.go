// Package impl has the type that every message of protobuf has in a field, by the end of its path.
package impl

// MessageState is empty here.
type MessageState struct{ at *int }
