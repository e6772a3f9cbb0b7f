package store

// The fence is what a row must still be for what a worker reports about its claim to count; nothing else is compared (spec §6). Every
// part is needed:
//
//   - status: a row that was reaped, released, cancelled or ended keeps its claim_token. coalesce() hides the status from the partial
//     indexes: planned while nothing executes, the bare literal would walk every executing row per entry (T98).
//   - locked_by: tokens and ids repeat after an asynchronous failover, and so another worker may have the row under the same token.
//   - claim_token: the same worker may have lost the row and claimed it again; its old claim must not pass for the new one.
//   - visit: a claim that is kept from step to step has one token and many visits, so an outcome that is sent again, since its commit
//     got no answer, must not apply to the next visit.
//
// What concerns the claim as a whole (heartbeat, release) leaves the visit out: see claimFence.

// claimFence renders the fence of a claim. worker and token are SQL expressions; the row is g.
func claimFence(worker, token string) string {
	return "coalesce(g.status = 'executing', false)" + " AND g.locked_by = " + worker + " AND g.claim_token = " + token
}

// visitFence renders the fence of one visit of a claim, and so of its outcome. The worker is $4 in all of these statements.
func visitFence(token, visit string) string {
	return claimFence("$4", token) + " AND g.visit = " + visit
}
