package entpgx

import (
	stdsql "database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// buffered is a result that was read to its end.
type buffered struct {
	columns []string
	types   []columnType
	cells   [][]byte // row by row; nil is NULL
	next    int      // the first cell behind the current row
	others  *pgtype.Map
}

type columnType struct {
	oid    uint32
	format int16
}

func (b *buffered) Next() bool {
	if b.next >= len(b.cells) || len(b.columns) == 0 {
		return false
	}
	b.next += len(b.columns)
	return true
}

func (b *buffered) Close() error { b.cells = nil; return nil }

func (b *buffered) Err() error { return nil }

func (b *buffered) Columns() ([]string, error) { return b.columns, nil }

func (b *buffered) NextResultSet() bool { return false }

// ColumnTypes always fails, as with rows.
func (b *buffered) ColumnTypes() ([]*stdsql.ColumnType, error) {
	return nil, errors.New("a native result has no column types of database/sql")
}

// Scan scans the current row.
func (b *buffered) Scan(into ...any) error {
	if len(into) != len(b.columns) {
		return fmt.Errorf("scan a row of %d columns into %d places", len(b.columns), len(into))
	}
	row := b.cells[b.next-len(b.columns) : b.next]
	for i, place := range into {
		if err := b.scan(b.types[i], row[i], place); err != nil {
			return fmt.Errorf("scan column %q: %w", b.columns[i], err)
		}
	}
	return nil
}

func (b *buffered) scan(of columnType, cell []byte, into any) error {
	switch into := into.(type) {
	case *[]byte:
		if of.isText() && of.oid != pgtype.ByteaOID {
			*into = cell
			return nil
		}
	case stdsql.Scanner:
		value, err := b.value(of, cell)
		if err != nil {
			return err
		}
		return into.Scan(value)
	case *any:
		value, err := b.value(of, cell)
		*into = value
		return err
	}
	return b.typeMap().Scan(of.oid, of.format, cell, into)
}

// value returns a cell as database/sql hands it to a Scanner.
func (b *buffered) value(of columnType, cell []byte) (any, error) {
	known, ok := b.typeMap().TypeForOID(of.oid)
	switch {
	case cell == nil:
		return nil, nil
	case ok && of.format == pgtype.BinaryFormatCode && isArray(known):
		elements, err := known.Codec.DecodeValue(b.others, of.oid, of.format, cell)
		if err != nil {
			return nil, err
		}
		text, err := b.others.Encode(of.oid, pgtype.TextFormatCode, elements, nil)
		return string(text), err
	case ok:
		return known.Codec.DecodeDatabaseSQLValue(b.others, of.oid, of.format, cell)
	case of.format == pgtype.TextFormatCode:
		return string(cell), nil
	}
	return cell, nil
}

// isArray reports whether pgx hands database/sql the bytes of the binary form.
func isArray(t *pgtype.Type) bool {
	_, is := t.Codec.(*pgtype.ArrayCodec)
	return is
}

// typeMap is used by one goroutine, as the result is.
func (b *buffered) typeMap() *pgtype.Map {
	if b.others == nil {
		b.others = pgtype.NewMap()
	}
	return b.others
}

// isText reports whether the bytes are the text. Enums and other types that pgx does not know come
// as text.
func (t columnType) isText() bool {
	return t.format == pgtype.TextFormatCode || t.oid == pgtype.TextOID || t.oid == pgtype.VarcharOID || t.oid == pgtype.JSONOID
}
