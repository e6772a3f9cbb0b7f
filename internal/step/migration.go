package step

import "encoding/json"

// Unconverted begins the last error of an instance that is paused since its state could not be
// converted.
const Unconverted = "cannot become version "

// Migration converts instances of one version of a machine into a newer one.
type Migration struct {
	Machine    string
	From, To   int
	Steps      map[string]string // from the old version's step to the new one's; others do not move
	SameResult bool              // both versions have the same type of result
	Fault      error             // what is wrong with it, whatever the definition
	// Convert decodes a state of From, converts it and encodes it for To. It panics if the user's code
	// does.
	Convert func(env *Env, state json.RawMessage) (json.RawMessage, error)
}

// Chain returns the migrations from a version to the machine's, in order; none if there is no way.
func (m *Machine) Chain(version int) (chain []*Migration) {
	if m == nil {
		return nil
	}
	for version != m.Version {
		next := m.from(version)
		if next == nil || len(chain) == len(m.From) {
			return nil
		}
		chain, version = append(chain, next), next.To
	}
	return chain
}

func (m *Machine) from(version int) *Migration {
	for _, one := range m.From {
		if one.From == version {
			return one
		}
	}
	return nil
}

// Arrives returns the step at which an instance of a version that stands at a step goes on as one
// of the machine's version, by the chain of migrations from there; false if it stays.
func Arrives(chain []*Migration, at string) (string, bool) {
	for _, one := range chain {
		to, ok := one.Steps[at]
		if !ok {
			return "", false
		}
		at = to
	}
	return at, len(chain) > 0
}
