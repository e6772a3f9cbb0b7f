package dashboard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The fields behind a large array are shown, however large it is.
func TestFieldsBehindALargeArrayAreShown(t *testing.T) {
	t.Parallel()
	rows := strings.Repeat("1,", 4*maxNodes) + "1"
	root := tree([]byte(`{"order": {"rows": [` + rows + `], "total": 7}, "more": [` + rows + `], "customer": "ada", "last": {"a": 1}}`))
	var names []string
	for _, n := range root.Nodes {
		names = append(names, n.Key+" "+n.Text)
	}
	require.Equal(t, []string{"order ", "more ", "customer ada", "last "}, names)
	require.Equal(t, "7", root.Nodes[0].Nodes[1].Text)
	require.Equal(t, 4*maxNodes+1, root.Nodes[1].Size)
	require.Equal(t, "1", root.Nodes[3].Nodes[0].Text)
	count := 0
	var walk func(n *node)
	walk = func(n *node) {
		count++
		for _, child := range n.Nodes {
			walk(child)
		}
	}
	var wide strings.Builder
	for n := range 10 * maxNodes {
		fmt.Fprintf(&wide, `"%d": {"a": {"b": 1}},`, n)
	}
	walk(tree([]byte(`{` + wide.String() + `"z": 1}`)))
	require.Less(t, count, 3*maxNodes, "a wide object is cut all the same")
}
