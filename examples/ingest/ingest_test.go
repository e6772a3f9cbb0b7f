package ingest

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

func options(t *testing.T, directory string) Options {
	t.Helper()
	return Options{Pool: pgtest.Pool(t, pgtest.Migrated(t)), Schema: "gendurable", Directory: directory, Progress: run.NewProgress(t.Output())}
}

// write makes files, given as path and content, below a new directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return root
}

func TestTheTotalsAreThoseOfAPlainWalk(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{
		"a.txt":        "one\ntwo\n",
		"b/empty":      "",
		"b/no-newline": "one\ntwo and a half",
		"b/c/d/deep":   strings.Repeat("x", 200_000) + "\n",
		"b/\xff\xfe":   "a name that is not text\n",
		`b/"quoted"`:   "a name that looks quoted\n",
	})
	require.NoError(t, os.MkdirAll(filepath.Join(root, "nothing", "in", "here"), 0o755))
	require.NoError(t, os.Symlink(root, filepath.Join(root, "b", "loop")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "dangling")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600))

	want, err := plain(t.Context(), diskReader(), Path(root))
	require.NoError(t, err)
	require.NotEmpty(t, want.Digest)
	want.Digest = ""
	require.Equal(t, Totals{Sums: Sums{
		Directories: 7, Files: 6, Bytes: 8 + 18 + 200_001 + 24 + 25, Lines: 2 + 2 + 1 + 1 + 1, Longest: 200_000, Links: 2, Special: 1,
	}}, want)
	require.NoError(t, Run(t.Context(), options(t, root)))
}

func TestWhatCannotBeReadIsReportedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{"kept": "1\n", "secret": "2\n", "gone": "3\n", "closed/inside": "4\n", "moved/inside": "5\n"})
	// The tests may run as a user who can read everything, and nothing vanishes on demand.
	disk := diskReader()
	files := reader{
		open: func(name string) (io.ReadCloser, error) {
			switch filepath.Base(name) {
			case "secret":
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
			case "gone":
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return disk.open(name)
		},
		readDir: func(name string) ([]fs.DirEntry, error) {
			switch filepath.Base(name) {
			case "closed":
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
			case "moved":
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return disk.readDir(name)
		},
	}
	o := options(t, root)
	totals, _, err := durable(t.Context(), o, files, Path(root))
	require.NoError(t, err)
	require.Len(t, totals.Problems, 2)
	for i, name := range []string{"secret", "closed"} {
		require.Contains(t, totals.Problems[i], filepath.Join(root, name))
		require.Contains(t, totals.Problems[i], "permission denied")
	}
	totals.Digest = ""
	require.Equal(t, Sums{Directories: 1, Files: 1, Bytes: 2, Lines: 1, Longest: 1, Unreadable: 2, Vanished: 2}, totals.Sums)
	require.NoError(t, compare(t.Context(), o, files, Path(root)))
}

func TestALargeDirectoryTakesSeveralRounds(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range roundSize + 100 {
		files[fmt.Sprintf("%05d", i)] = "x\n"
		if i < 10 {
			files[fmt.Sprintf("sub%d/file", i)] = "y\n"
		}
	}
	o := options(t, write(t, files))
	require.NoError(t, Run(t.Context(), o))
	var visits, children int64
	require.NoError(t, o.Pool.QueryRow(t.Context(), `select p.visit, (select count(*) from gendurable.gen_durable c where c.parent_id = p.id)
		from gendurable.gen_durable p where p.parent_id is null`).Scan(&visits, &children))
	require.EqualValues(t, roundSize+100+10, children)
	require.EqualValues(t, 3, visits, "start, join, start, join")
}

func TestAnInterruptedIngestGoesOn(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("%d/%d", i%20, i)] = "x\n"
	}
	root := write(t, files)
	o := options(t, root)
	slow := diskReader()
	read := slow.open
	slow.open = func(name string) (io.ReadCloser, error) {
		<-time.After(20 * time.Millisecond) // so that the interrupt comes before the end
		return read(name)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() {
		_, _, err := durable(ctx, o, slow, Path(root))
		ended <- err
	}()
	require.Eventually(t, func() bool { return countDone(t, o.Pool) > 50 }, time.Minute, 5*time.Millisecond)
	interrupt()
	require.ErrorIs(t, <-ended, context.Canceled)
	before := countDone(t, o.Pool)
	require.Less(t, before, 300)

	totals, resumed, err := durable(t.Context(), o, diskReader(), Path(root))
	require.NoError(t, err)
	require.True(t, resumed)
	require.EqualValues(t, 300, totals.Files)
	var instances int
	require.NoError(t, o.Pool.QueryRow(t.Context(), `select count(*) from gendurable.gen_durable`).Scan(&instances))
	require.Equal(t, 300+21, instances, "nothing was begun anew")
}

func countDone(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from gendurable.gen_durable where status = 'done'`).Scan(&n))
	return n
}

func TestADifferenceIsFound(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{"a": "1\n", "b": "2\n"})
	o := options(t, root)
	var opened atomic.Int32
	disk := diskReader()
	files := reader{readDir: disk.readDir, open: func(name string) (io.ReadCloser, error) {
		if opened.Add(1) == 3 { // two are the first walk's; this one is the engine's
			return io.NopCloser(strings.NewReader("other\n")), nil
		}
		return disk.open(name)
	}}
	require.ErrorIs(t, compare(t.Context(), o, files, Path(root)), ErrDifferent)
}

func TestPathsOfAnyBytesSurvive(t *testing.T) {
	t.Parallel()
	for _, path := range []Path{"plain", "", `"quoted"`, `"`, "\xff\xfe", "ü\xc3", "new\nline", "\ufffd", `back\slash`} {
		raw, err := fsm.JSON{}.Encode(path)
		require.NoError(t, err)
		var back Path
		require.NoError(t, fsm.JSON{}.Decode(raw, &back))
		require.Equal(t, path, back)
	}
}

func TestRunRefusesWhatIsNoDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(write(t, map[string]string{"file": "x"}), "file")
	for _, path := range []string{file, file + ".missing"} {
		require.ErrorContains(t, Run(t.Context(), Options{Directory: path, Progress: run.NewProgress(t.Output())}), "file")
	}
}
