package fsm

// ID is the id of an instance, unique within one engine's schema. It is a separate type, so that
// the compiler refuses e.g. an order's id.
type ID int64

// Key is a correlation key of at most 512 bytes. While the status of its instance is in scope, it
// is unique, and an address (spec §7).
type Key string

// Target addresses an instance: an [ID] or a [Key].
type Target interface{ target() }

func (ID) target()  {}
func (Key) target() {}
