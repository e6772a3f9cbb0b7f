package migrate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	atlas "ariga.io/atlas/sql/migrate"

	"github.com/gendurable/gendurable/migrations"
)

// querier is a connection or a transaction on it.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// revisions is the revision table, in the Atlas CLI's format.
type revisions struct {
	db     querier
	schema string
}

func (r *revisions) table() string { return quoted(r.schema) + "." + migrations.RevisionTable }

// create creates the table exactly as the CLI would, since otherwise the CLI alters it at its next
// run.
func (r *revisions) create(ctx context.Context) error {
	_, err := r.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+r.table()+` (
		"version" character varying NOT NULL,
		"description" character varying NOT NULL,
		"type" bigint NOT NULL DEFAULT 2,
		"applied" bigint NOT NULL DEFAULT 0,
		"total" bigint NOT NULL DEFAULT 0,
		"executed_at" timestamptz NOT NULL,
		"execution_time" bigint NOT NULL,
		"error" text NULL,
		"error_stmt" text NULL,
		"hash" character varying NOT NULL,
		"partial_hashes" jsonb NULL,
		"operator_version" character varying NOT NULL,
		PRIMARY KEY ("version"))`)
	if err != nil {
		return fmt.Errorf("create the revision table: %w", err)
	}
	return nil
}

// Ident returns the name of the table.
func (r *revisions) Ident() *atlas.TableIdent {
	return &atlas.TableIdent{Name: migrations.RevisionTable, Schema: r.schema}
}

const revisionColumns = `version, description, type, applied, total, executed_at, execution_time,
	coalesce(error, ''), coalesce(error_stmt, ''), hash, coalesce(partial_hashes, 'null')::text, operator_version`

// ReadRevisions returns all revisions, oldest first. The CLI also keeps a row there whose version
// starts with a dot.
func (r *revisions) ReadRevisions(ctx context.Context) ([]*atlas.Revision, error) {
	return r.read(ctx, `WHERE version NOT LIKE '.%' ORDER BY version COLLATE "C"`)
}

// ReadRevision returns one revision, or atlas.ErrRevisionNotExist.
func (r *revisions) ReadRevision(ctx context.Context, version string) (*atlas.Revision, error) {
	found, err := r.read(ctx, "WHERE version = $1", version)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, atlas.ErrRevisionNotExist
	}
	return found[0], nil
}

func (r *revisions) read(ctx context.Context, where string, args ...any) (found []*atlas.Revision, err error) {
	rows, err := r.db.QueryContext(ctx, "SELECT "+revisionColumns+" FROM "+r.table()+" "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read revisions: %w", err)
	}
	defer func() {
		if closing := rows.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("read revisions: %w", closing))
		}
	}()
	for rows.Next() {
		var (
			revision atlas.Revision
			took     int64
			hashes   []byte
		)
		if err := rows.Scan(&revision.Version, &revision.Description, &revision.Type, &revision.Applied, &revision.Total,
			&revision.ExecutedAt, &took, &revision.Error, &revision.ErrorStmt, &revision.Hash, &hashes, &revision.OperatorVersion); err != nil {
			return nil, fmt.Errorf("read revisions: %w", err)
		}
		revision.ExecutionTime = time.Duration(took)
		if err := json.Unmarshal(hashes, &revision.PartialHashes); err != nil {
			return nil, fmt.Errorf("read the statement hashes of revision %q: %w", revision.Version, err)
		}
		found = append(found, &revision)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read revisions: %w", err)
	}
	return found, nil
}

// WriteRevision inserts or updates one revision.
func (r *revisions) WriteRevision(ctx context.Context, revision *atlas.Revision) error {
	hashes, err := json.Marshal(revision.PartialHashes)
	if err != nil {
		return fmt.Errorf("encode the statement hashes of revision %q: %w", revision.Version, err)
	}
	_, err = r.db.ExecContext(ctx, `INSERT INTO `+r.table()+` (version, description, type, applied, total, executed_at, execution_time,
			error, error_stmt, hash, partial_hashes, operator_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::jsonb, $12)
		ON CONFLICT (version) DO UPDATE SET applied = excluded.applied, total = excluded.total, execution_time = excluded.execution_time,
			error = excluded.error, error_stmt = excluded.error_stmt, hash = excluded.hash,
			partial_hashes = excluded.partial_hashes, operator_version = excluded.operator_version`,
		revision.Version, revision.Description, int64(revision.Type), //nolint:gosec // a few flags
		revision.Applied, revision.Total, revision.ExecutedAt,
		int64(revision.ExecutionTime), revision.Error, revision.ErrorStmt, revision.Hash, string(hashes), revision.OperatorVersion)
	if err != nil {
		return fmt.Errorf("write revision %q: %w", revision.Version, err)
	}
	return nil
}

// DeleteRevision deletes one revision, if there is one.
func (r *revisions) DeleteRevision(ctx context.Context, version string) error {
	if _, err := r.db.ExecContext(ctx, "DELETE FROM "+r.table()+" WHERE version = $1", version); err != nil {
		return fmt.Errorf("delete revision %q: %w", version, err)
	}
	return nil
}
