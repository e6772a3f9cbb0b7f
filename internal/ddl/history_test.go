package ddl

import (
	"testing"

	"ariga.io/atlas/sql/schema"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/ent/transition"
)

// The client reads the columns that the table has.
func TestHistoryHasTheColumnsOfTheClient(t *testing.T) {
	t.Parallel()
	var columns []string
	for _, column := range history(schema.New("")).Columns {
		columns = append(columns, column.Name)
	}
	require.Equal(t, transition.Columns, columns)
}
