package store

// A worker's report about its claim counts only while the row passes the fence; no other column is
// compared (§6). Every part of the fence is needed:
//
//   - status: a row that was reaped, released, cancelled or ended keeps its claim_token. coalesce()
//     hides the status from the partial indexes: if Postgres plans the statement while no row
//     executes, the bare literal would walk every executing row per entry (T98).
//   - locked_by: tokens and ids repeat after an asynchronous failover, so another worker may have
//     the row under the same token.
//   - claim_token: the same worker may have lost the row and claimed it again. Its old claim must
//     not pass for the new one.
//   - visit: a claim that is kept from step to step has one token and many visits. An outcome that
//     is sent again after a commit without an answer must not apply to the next visit.
//
// Reports about the claim as a whole (heartbeat, release) leave the visit out: see claimFence.

// claimFence renders the fence of a claim. worker and token are SQL expressions; the row is g.
func claimFence(worker, token string) string {
	return "coalesce(g.status = 'executing', false)" + " AND g.locked_by = " + worker + " AND g.claim_token = " + token
}

// visitFence renders the fence of one visit of a claim, and so of its outcome. The worker is $4 in
// all statements that use it.
func visitFence(token, visit string) string {
	return claimFence("$4", token) + " AND g.visit = " + visit
}
