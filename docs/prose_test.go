package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateProse = flag.Bool("update-prose", false, "write testdata/prose.txt: which files still have how many sentences of the kinds below")

// habits are kinds of sentences that readers have to read twice, each below an example of what to
// write instead.
var habits = []struct {
	name  string
	match *regexp.Regexp
}{
	// "rows that wait", not "what waits"; "a process that stops", not "who stops"
	{"a clause as a noun", regexp.MustCompile(`(?i)(?:^|[,;:.] |\b(?:for|of|to|by|and|or|that|than|as|from|with|since|is) )(?:what|who|whoever|whatever)\b ` +
		`(?:is|are|was|were|has|have|had|waits?|runs?|comes?|goes|holds?|does|may|can|needs?|ends?|\w+s)\b`)},
	// "another transaction has locked the row", not "somebody has"
	{"a person for a process", regexp.MustCompile(`(?i)\b(?:somebody|someone|nobody|anybody|whoever|a stranger|strangers?)\b`)},
	// repeat the noun
	{"that of", regexp.MustCompile(`(?i)\b(?:that|those) of\b`)},
	// "its own connection", not "a connection of its own"
	{"of its own", regexp.MustCompile(`(?i)\bof (?:its|their|one's) own\b`)},
	// "if there is"
	{"where for if", regexp.MustCompile(`(?i)\bwhere (?:there (?:is|are)|it|one|they|nobody|somebody)\b`)},
}

var (
	sentenceEnd = regexp.MustCompile(`[.!?:]\s+`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
)

// habitsIn returns the sentences of a text that have a habit, each with the habit's name.
func habitsIn(text string) (found []string) {
	text = strings.Join(strings.Fields(inlineCode.ReplaceAllString(text, "x")), " ")
	for begin := 0; begin < len(text); {
		end := len(text)
		if at := sentenceEnd.FindStringIndex(text[begin:]); at != nil {
			end = begin + at[1]
		}
		sentence := strings.TrimSpace(text[begin:end])
		begin = end
		if len(strings.Fields(sentence)) < 4 {
			continue
		}
		for _, h := range habits {
			if h.match.MatchString(sentence) {
				found = append(found, h.name+": "+sentence)
			}
		}
	}
	return found
}

// paragraphs returns a page's text outside of code blocks, each cell of a table by itself.
func (p page) paragraphs() (all []string) {
	prose, text := p.prose(), ""
	for _, number := range slices.Sorted(maps.Keys(prose)) {
		line := strings.TrimSpace(prose[number])
		switch {
		case line == "":
			all, text = append(all, text), ""
		case strings.HasPrefix(line, "|"):
			all, text = append(append(all, text), strings.Split(line, "|")...), ""
		case strings.HasPrefix(line, "- "):
			all, text = append(all, text), line[2:]
		default:
			text += " " + line
		}
	}
	return append(all, text)
}

// comments returns the blocks of comments of a Go file that is written by hand.
func comments(t *testing.T, file string) (all []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	if strings.HasPrefix(string(content), "// Code generated") {
		return nil
	}
	text := ""
	for line := range strings.Lines(string(content)) {
		comment, is := strings.CutPrefix(strings.TrimSpace(line), "//")
		if is && strings.HasPrefix(comment, " ") {
			text += comment
			continue
		}
		all, text = append(all, text), ""
	}
	return append(all, text)
}

// wordy returns what TestProseIsPlain found, by the path of a page or of a package, and by the list
// of the texts of errors.
func wordy(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, p := range withFolders(t) {
		for _, text := range p.paragraphs() {
			found[p.path] = append(found[p.path], habitsIn(text)...)
		}
	}
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules" || name == "testdata" || name == "ent"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go"):
			for _, text := range comments(t, file) {
				found[path.Dir(file)] = append(found[path.Dir(file)], habitsIn(text)...)
			}
		}
		return nil
	})
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join("testdata", "errors.txt"))
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		_, quoted, _ := strings.Cut(strings.TrimSpace(line), ": ")
		text, err := strconv.Unquote(quoted)
		require.NoError(t, err, line)
		found["errors"] = append(found["errors"], habitsIn(text)...)
	}
	return found
}

// TestProseIsPlain looks for sentences with a habit in pages, in comments, and in the texts of
// errors. testdata/prose.txt has how many a page or the comments of a package may still have;
// others may have none, and no error may.
func TestProseIsPlain(t *testing.T) {
	t.Parallel()
	list := filepath.Join("testdata", "prose.txt")
	found := wordy(t)
	if *updateProse {
		text := ""
		for _, at := range slices.Sorted(maps.Keys(found)) {
			if n := len(found[at]); n > 0 {
				text += fmt.Sprintf("%s %d\n", at, n)
			}
		}
		require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
	}
	content, err := os.ReadFile(list)
	require.NoError(t, err)
	allowed := map[string]int{}
	for line := range strings.Lines(string(content)) {
		at, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		allowed[at], err = strconv.Atoi(number)
		require.NoError(t, err, line)
		require.Contains(t, found, at, "testdata/prose.txt lists what does not exist")
	}
	for at, sentences := range found {
		if len(sentences) > allowed[at] {
			t.Errorf("%s has %d sentences that readers read twice, and may have %d. Name the subject, and use an active verb:\n  %s",
				at, len(sentences), allowed[at], strings.Join(sentences, "\n  "))
		}
	}
}

// Sentences with a habit are found, and no others.
func TestHabitsAreFound(t *testing.T) {
	t.Parallel()
	for sentence, want := range map[string]string{
		"The reaper looks for what is late and gives it back.":       "a clause as a noun",
		"By then somebody has locked the row.":                       "a person for a process",
		"The lock is that of the parent, not one of its children.":   "that of",
		"Each sweep has a connection of its own and waits for none.": "of its own",
		"An index is used where there is one that fits.":             "where for if",
		"The reaper looks for rows whose lease has ended.":           "",
		"It prints `what is late` and `somebody` and goes on.":       "",
		"Somebody.": "",
		"The engine says what it does, and which rows it has locked.": "",
	} {
		found := habitsIn(sentence)
		if want == "" {
			require.Empty(t, found, sentence)
			continue
		}
		require.Len(t, found, 1, sentence)
		require.True(t, strings.HasPrefix(found[0], want+": "), found[0])
	}
}
