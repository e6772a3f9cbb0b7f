package cluster

// Tests look at these.
var (
	PlaceSQL = placeSQL
	LastID   = lastID
)
