package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.insert(1, func(s fsm.Spec) fsm.Spec { return s.After(time.Hour) })
	target := fmt.Sprint(id)
	h.run("instance", "cancel", target, "--reason", "ticket 7", "--actor", "ada").is(codeDone)
	h.run("queue", "pause", "mail").is(codeDone)
	h.run("gate", "set", "g", "1", "--queue", "mail", "--actor", "grace").is(codeDone)

	h.run("audit").is(codeDone).says("grace", "set_gate", "gate g", systemUser(), "pause_queue", "queue mail",
		"ada", "cancel", target+" order", `failure: none → "cancelled"`, `status: "runnable" → "failed"`, "ticket 7")
	i, err := h.eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "cancelled: ticket 7", i.LastError)

	got := read[audited](h.run("audit", "--limit", "1", "--json").is(codeDone))
	require.Equal(t, "grace", got.Entries[0].Actor)
	require.NotNil(t, got.Next)
	rest := read[audited](h.run("audit", "--before", got.Next.Format(time.RFC3339Nano), "--json").is(codeDone))
	require.Len(t, rest.Entries, 2)
	require.Nil(t, rest.Next)
	require.Len(t, read[audited](h.run("audit", "--instance", target, "--by", "ada", "--verb", "cancel", "--since", "1h", "--json").is(codeDone)).Entries, 1)
	require.Empty(t, read[audited](h.run("audit", "--subject", "queue other", "--json").is(codeDone)).Entries)
	h.run("audit", "--instance", "x").is(codeUsage).complains("is no id")
	h.run("audit", "--limit", "0").is(codeUsage).complains("--limit: 0")
	h.run("audit", "--since", "yesterday").is(codeUsage).complains("--since")
}
