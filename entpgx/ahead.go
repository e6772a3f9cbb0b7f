package entpgx

import "github.com/jackc/pgx/v5"

// A statement waits for the lock of a table not only when it runs: Postgres locks its tables when
// it is prepared. pgx prepares all new statements of a pipeline before it sends the first, so a
// timeout that the pipeline itself sets would not hold yet, and a transaction that has a table
// locked would hold up a fresh connection without a bound. So settings go ahead of statements that
// are about to be prepared.

// memory is what a connection knows of its statements.
type memory struct {
	mode pgx.QueryExecMode
	met  map[string]struct{} // their texts
}

// memoryMost is how many statements a connection remembers: as many as pgx does by default.
const memoryMost = 512

// memoryKey is where a connection keeps its memory.
const memoryKey = "gendurable: statements"

// ahead returns how many statements have to go ahead: those up to the last that is [Stmt.Ahead], if
// pgx is about to prepare one of the others.
func ahead(conn *pgx.Conn, stmts []Stmt) (n int) {
	for i, stmt := range stmts {
		if stmt.Ahead {
			n = i + 1
		}
	}
	if n == 0 || !prepares(conn, stmts[n:]) {
		return 0
	}
	return n
}

// prepares reports whether the connection has not met one of the statements, which it has from then
// on. In [pgx.QueryExecModeDescribeExec] pgx describes the others again each time; to send settings
// ahead each time would double the round trips of that mode.
func prepares(conn *pgx.Conn, stmts []Stmt) (some bool) {
	m, ok := conn.PgConn().CustomData()[memoryKey].(*memory)
	if !ok {
		m = &memory{conn.Config().DefaultQueryExecMode, map[string]struct{}{}}
		conn.PgConn().CustomData()[memoryKey] = m
	}
	switch m.mode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol: // the server parses each in its turn
		return false
	default:
	}
	if len(m.met) > memoryMost {
		clear(m.met)
	}
	for _, stmt := range stmts {
		if _, ok := m.met[stmt.SQL]; !ok {
			m.met[stmt.SQL], some = struct{}{}, true
		}
	}
	return some
}

// forget makes the next pipelines take their statements for new ones: after an error pgx may have
// prepared only some, and prepares again those that the error may be about.
func forget(conn *pgx.Conn) {
	if !conn.IsClosed() {
		delete(conn.PgConn().CustomData(), memoryKey)
	}
}
