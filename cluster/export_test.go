package cluster

// What tests look at.
var (
	PlaceSQL = placeSQL
	LastID   = lastID
)
