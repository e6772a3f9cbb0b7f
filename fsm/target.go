package fsm

// ID of an instance: unique within one engine's schema. A type of its own, so that an order's id cannot be passed for one.
type ID int64

// Key is a correlation key: while its owner's status is in scope it is unique, and an address (spec §7). At most 512 bytes.
type Key string

// Target addresses an instance: an [ID] or a [Key].
type Target interface{ target() }

func (ID) target()  {}
func (Key) target() {}
