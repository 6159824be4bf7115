package retryhttp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/snippets"
)

// leftOut reports whether a path is in a nested module, and this is the content of a module zip.
// A module zip has no nested modules. A checkout has all of them, and a file that is missing there
// is an error.
func leftOut(t *testing.T, path string) bool {
	t.Helper()
	top, _, _ := strings.Cut(filepath.ToSlash(filepath.Clean(path)), "/")
	if !slices.Contains([]string{"otelretry", "redisbudget", "retrylab", "test"}, top) {
		return false
	}
	for _, pattern := range []string{"*/go.mod", "*/*/go.mod"} {
		nested, err := filepath.Glob(pattern)
		require.NoError(t, err)
		if len(nested) > 0 {
			return false
		}
	}
	return true
}

func TestDocsShowOnlyCodeThatIsTested(t *testing.T) {
	if leftOut(t, "redisbudget") {
		t.Skip("some of the code is in a nested module, which is not here")
	}
	sources, err := filepath.Glob("examples/*/main.go")
	require.NoError(t, err)
	sources = append(sources,
		"example_test.go", "example_choosing_test.go", "example_hedge_test.go", "example_testing_test.go",
		"redisbudget/example_test.go")
	for _, document := range []string{"README.md", "docs/choosing.md", "docs/testing.md"} {
		missing, err := snippets.Missing(document, sources...)
		require.NoError(t, err)
		assert.Empty(t, missing, "of %s", document)
	}
	missing, err := snippets.Missing("docs/design.md", "transport.go")
	require.NoError(t, err)
	assert.Empty(t, missing, "the loop")
}

func TestREADMEShowsWhatTheQuickstartPrints(t *testing.T) {
	output, err := snippets.WithoutIndent("examples/quickstart/output.txt")
	require.NoError(t, err)
	readme, err := snippets.WithoutIndent("README.md")
	require.NoError(t, err)
	assert.Contains(t, readme, "```\n"+output+"```")
}

func TestREADMEIsShort(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(readme), "\n"), 130)
}

// The README compares a few libraries in a few lines of the last report's table.
func TestREADMEQuotesTheComparison(t *testing.T) {
	quoted := table(t, "README.md", "## Compared\n")
	full := table(t, "docs/benchmarks.md", "## At a glance\n")
	require.Len(t, quoted[""], 4)
	require.Len(t, quoted, 5, "four lines and the head")
	for line, cells := range quoted {
		require.Contains(t, full, line)
		for i, cell := range cells {
			column := slices.Index(full[""], quoted[""][i])
			require.NotEqual(t, -1, column, quoted[""][i])
			assert.Equal(t, full[line][column], cell, "%s of %s", line, quoted[""][i])
		}
	}
}

func TestREADMEQuotesTheOutage(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(readme)), " ")
	outage := table(t, "docs/simulation.md", "## An outage\n")
	with, without := outage["default, with the Gate"], outage["no budget, no Gate"]
	require.Len(t, with, 6)
	assert.Contains(t, text, with[0]+" of the requests that the outage hits are lost, at a load of "+with[2]+" attempts")
	assert.Contains(t, text, "lose "+without[0]+" at "+without[2]+".")
}

// Figures of the simulations that other documents quote. Each run of a report changes some.
func TestDocsQuoteTheSimulation(t *testing.T) {
	times := func(cells []string) string { // from the median to the longest
		return strings.TrimSuffix(cells[0], " s") + " to " + cells[1]
	}
	recovery := map[string]string{} // by the number of processes and the budget
	for _, line := range rowsOf(t, "docs/simulation.md", "## One budget for a fleet\n") {
		recovery[line[0]+" "+line[1]] = times(line[3:])
	}
	spike := table(t, "docs/simulation.md", "## A spike that outlasts itself\n")
	herd := table(t, "docs/simulation.md", "## A herd\n")
	quotes := map[string][]string{
		"docs/choosing.md": {
			"recovers in " + recovery["1000 redisbudget.Bucket"],
			"with 2 for " + spike["Burst 2, 1,000 processes"][1],
			"without jitter, " + herd["no jitter"][2] + " were",
		},
		"docs/behavior.md": {
			"A Burst of 1 makes that " + times(spike["Burst 1, 1,000 processes"][1:]),
			"it recovers in " + recovery["1000 redisbudget.Bucket"],
		},
		"redisbudget/redisbudget.go": nil,
	}
	for budget, title := range map[string]string{
		"TokenBucket": "TokenBucket", "TokenBucket, Burst 1": "TokenBucket with Burst 1", "redisbudget.Bucket": "redisbudget.Bucket",
	} {
		quotes["redisbudget/redisbudget.go"] = append(quotes["redisbudget/redisbudget.go"],
			"// "+title+" "+recovery["100 "+budget]+" "+recovery["1000 "+budget]+" ")
	}
	for document, quoted := range quotes {
		if leftOut(t, document) {
			continue
		}
		content, err := os.ReadFile(document)
		require.NoError(t, err)
		text := strings.Join(strings.Fields(string(content)), " ")
		for _, quote := range quoted {
			assert.Contains(t, text, quote, document)
		}
	}
}

// table returns the first table after a heading: its cells by the text of the first column.
func table(t *testing.T, document, heading string) map[string][]string {
	t.Helper()
	byName := map[string][]string{}
	for _, line := range rowsOf(t, document, heading) {
		byName[line[0]] = line[1:]
	}
	return byName
}

// rowsOf returns the cells of the first table after a heading.
func rowsOf(t *testing.T, document, heading string) (cells [][]string) {
	t.Helper()
	content, err := os.ReadFile(document)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(content), heading)
	require.True(t, found, document)
	_, section, found = strings.Cut(section, "\n|")
	require.True(t, found, document)
	section, _, _ = strings.Cut(section, "\n\n")
	for _, line := range strings.Split(section, "\n") {
		split := strings.Split(strings.Trim(line, "|"), "|")
		for i := range split {
			split[i] = strings.TrimSpace(split[i])
		}
		if !strings.HasPrefix(split[0], "---") {
			cells = append(cells, split)
		}
	}
	return cells
}

// The tests and files that docs/design.md names must exist.
func TestDesignNamesTestsAndFilesThatExist(t *testing.T) {
	design, err := os.ReadFile("docs/design.md")
	require.NoError(t, err)
	named := 0
	for _, line := range strings.Split(string(design), "\n") {
		directory := "." // until the line names another one: `redisbudget`: `TestX`
		for _, name := range regexp.MustCompile("`([A-Za-z0-9_/]+)`").FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(name[1], "Test") && !strings.HasPrefix(name[1], "Fuzz") {
				directory = name[1]
				continue
			}
			named++
			if leftOut(t, directory) {
				continue
			}
			exists := strings.Contains(testsIn(t, directory), "func "+name[1]+"(")
			assert.True(t, exists, "%s in %s", name[1], directory)
		}
	}
	require.Greater(t, named, 150)
	files := table(t, "docs/design.md", "## The files\n")
	require.Greater(t, len(files), 10)
	for cell := range files {
		for _, path := range strings.Split(cell, " · ") {
			if path != "file" && path != "" && !leftOut(t, path) {
				_, err := os.Stat(strings.TrimSuffix(path, "/…"))
				assert.NoError(t, err)
			}
		}
	}
}

// testsIn returns the source of a directory's tests.
func testsIn(t *testing.T, directory string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "*_test.go"))
	require.NoError(t, err)
	var source strings.Builder
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		source.Write(content)
	}
	return source.String()
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	documents := []string{"README.md", "CHANGELOG.md", "testdata/conformance/README.md"}
	more, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, document := range append(documents, more...) {
		content, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(content), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link[1], "#")
			target := document
			if path != "" {
				target = filepath.Join(filepath.Dir(document), path)
			}
			if leftOut(t, target) {
				continue
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "from %s", document)
			if anchor != "" {
				assert.Contains(t, headings(t, target), anchor, "from %s to %s", document, target)
			}
		}
	}
}

// headings returns a document's headings, as links name them.
func headings(t *testing.T, document string) (anchors []string) {
	t.Helper()
	content, err := os.ReadFile(document)
	require.NoError(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(content), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors = append(anchors, strings.ReplaceAll(anchor, " ", "-"))
	}
	return anchors
}

// Dependencies that only some users need, such as OpenTelemetry, are in nested
// modules.
func TestModuleDependsOnNoMoreThanTheREADMESays(t *testing.T) {
	content, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	var direct []string
	for _, line := range strings.Split(string(content), "\n") {
		module, version, found := strings.Cut(strings.TrimSpace(line), " v")
		if found && !strings.Contains(version, "indirect") {
			direct = append(direct, module)
		}
	}
	assert.ElementsMatch(t,
		[]string{"github.com/hashicorp/go-cleanhttp", "github.com/stretchr/testify", "golang.org/x/time"}, direct)
}
