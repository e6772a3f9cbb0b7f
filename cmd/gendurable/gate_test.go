package main

import "testing"

func TestGates(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.run("gate", "set", "each", "3", "--machine", "charge", "--label", "customer").is(codeDone).
		says(`3 places of "each", of machine charge, each customer`)
	h.run("gate", "set", "each", "3", "--machine", "charge", "--label", "customer").is(codeDone).says("was that already")
	h.run("gate", "set", "all", "0").is(codeDone).says("of all")
	h.run("gate", "list").is(codeDone).says("machine charge, each customer")
	h.run("gate", "list", "--json").is(codeDone).says(`"places": 3`)
	h.run("gate", "set", "a/b", "1").complains("slash")
	h.run("gate", "set", "each", "many").is(codeUsage)
	h.run("gate", "drop", "each").is(codeDone).says("dropped")
	h.run("gate", "drop", "each").is(codeDone).says("there is no gate")
}
