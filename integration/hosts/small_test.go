package hosts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The engine costs a host's binary less than 4 MB: a pool of pgx with a query and a transaction
// alone takes 13.8 MB, and a host with hardly anything else stays under 17.85 MB, built plainly.
// What easily breaks that is code that looks up methods by names which the linker cannot see, as
// templates do: it then keeps every exported method of the whole program. go build
// -ldflags=-dumpdep names it: <ReflectMethod>. So does a variable of a package that is set by a
// call: each host then links that call, used or not.
func TestSizeOfASmallHost(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "small")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./small")
	// Neither -race nor -cover, by which a test may be built, counts.
	build.Env = append(os.Environ(), "GOFLAGS=-trimpath")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	built, err := os.Stat(binary)
	require.NoError(t, err)
	require.Less(t, built.Size(), int64(17_850_000))

	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./small")
	out, err = list.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "github.com/gendurable/gendurable/fsm\n")
	require.NotContains(t, string(out), "golang.org/x/tools/", "only the command line tool reads code")
	require.NotContains(t, string(out), "net/http\n", "package health serves probes")
}
