package store

import "github.com/gendurable/gendurable/internal/step"

// The lane of a runnable row (pick_lane) says where claims find it. The base's indexes and checks
// have these numbers, too.
const (
	laneFront = iota // where all claims look
	laneKey          // behind its partition key
	laneAside        // set aside: a worker that met it does not know its machine
	laneLine         // in line at a gate
	laneStray        // set aside: a worker that met it does not know its step
	laneSkip         // a node that is to be skipped: no claim takes it, Skip ends it
)

// The act of a claim is what it does to a row that it has locked.
const (
	actClaim   = iota // claims it
	actBehind         // puts it behind its partition key
	actAside          // sets it aside
	actForward        // brings it to the front: it is the head of its key
	actBlocked        // puts it behind its key, of which somebody else has the head locked
	actLine           // puts it in line at its gate
	actFront          // lets it leave its line for the front, where a claim decides anew
	actStep           // puts it in line at the gate of its step, with its place at the gate of its run
)

// numbers are what texts call by a name: {lane front} is 0.
var numbers = map[string]int{
	"lane front": laneFront, "lane key": laneKey, "lane aside": laneAside, "lane line": laneLine, "lane stray": laneStray, "lane skip": laneSkip,
	"act claim": actClaim, "act behind": actBehind, "act aside": actAside, "act forward": actForward, "act blocked": actBlocked,
	"act line": actLine, "act front": actFront, "act step": actStep,
	"needs done": int(step.NeedsDone), "needs end": int(step.NeedsEnd), "needs failed": int(step.NeedsFailed), "needs any": int(step.NeedsAny),
}
