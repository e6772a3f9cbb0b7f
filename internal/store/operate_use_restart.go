package store

// A Retry runs one instance, and nothing else. Of a graph that may be too little: rows that wait
// for the instance, or were skipped for it, would not go on. The texts below say of a row which of
// these it is. A page or command that offers a Retry reads what refuses one.

// joinsText says of a row that it is at the visit at which its round joins.
func joinsText(g string) string {
	return `(` + g + `.round = ` + g + `.visit OR coalesce(` + g + `.join_round = ` + g + `.visit, false))`
}

// rootText says of a row that it has failed at the join of nodes that are not done: it would find
// them so again. One that was skipped for another node that has failed is what the graph meant.
func rootText(g string) string {
	return `CASE WHEN ` + g + `.status = 'failed' AND ` + g + `.round > 0 AND ` + joinsText(g) + ` THEN EXISTS (
    SELECT FROM {s}.gen_durable k WHERE k.parent_id = ` + g + `.id AND k.parent_round = ` + g + `.round AND k.node IS NOT NULL AND k.status <> 'done'
      AND NOT (coalesce(k.failure = 'skipped', false) AND coalesce(k.join_failed > 0, false)) OFFSET 0) ELSE false END`
}

// pieceText says of a row that it has failed beneath a node that has failed.
func pieceText(g string) string {
	return `CASE WHEN ` + g + `.status = 'failed' AND ` + g + `.parent_id IS NOT NULL THEN EXISTS (
    SELECT FROM {s}.gen_durable p WHERE p.id = ` + g + `.parent_id AND p.node IS NOT NULL AND p.status = 'failed' OFFSET 0) ELSE false END`
}

// unretried returns why a Retry is refused of an instance that has failed, or nil.
func unretried(node, root, piece bool) error {
	switch {
	case node:
		return ErrNode
	case root:
		return ErrRoot
	case piece:
		return ErrPiece
	}
	return nil
}

// useRestartMost bounds how far UseRestartText looks up.
const useRestartMost = "100"

// UseRestartText is NULL for an instance of which a Retry is not an ErrUseRestart. Otherwise it is
// the id of that whose Restart runs it again: itself, or the node that it works for; 0 if nothing
// waits for it any more. id is an expression.
func UseRestartText(id string) string {
	return `(WITH RECURSIVE up AS (
  SELECT x.*, 1 AS n, CASE WHEN x.piece THEN true ELSE x.node AND (x.skipped OR NOT EXISTS (SELECT FROM {s}.gen_durable p
      WHERE p.id = x.parent_id AND p.status = 'awaiting_children' AND p.round = x.parent_round OFFSET 0)) END AS helpless
  FROM (` + aboutText + ` WHERE g.id = ` + id + ` AND g.status = 'failed') x WHERE x.node OR x.root OR x.piece
  UNION ALL
  SELECT x.*, up.n + 1, x.status = 'failed' AND (x.piece OR x.node AND (x.skipped OR NOT EXISTS (SELECT FROM {s}.gen_durable p
      WHERE p.id = x.parent_id AND p.status = 'awaiting_children' AND p.round = x.parent_round OFFSET 0))) AS helpless
  FROM up CROSS JOIN LATERAL (` + aboutText + ` WHERE g.id = up.parent_id AND (g.status = 'failed' AND up.piece
    OR g.status IN ('failed', 'awaiting_children') AND g.round = up.parent_round AND ` + joinsText("g") + `) OFFSET 0) x
  WHERE up.helpless AND up.n < ` + useRestartMost + `)
SELECT CASE WHEN up.helpless THEN 0 ELSE up.id END FROM up ORDER BY up.n DESC LIMIT 1)`
}

var aboutText = `SELECT g.id, g.parent_id, g.parent_round, g.status, g.node IS NOT NULL AS node, coalesce(g.failure = 'skipped', false) AS skipped,
    ` + rootText("g") + ` AS root, ` + pieceText("g") + ` AS piece FROM {s}.gen_durable g`
