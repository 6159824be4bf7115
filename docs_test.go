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

func TestDocsShowOnlyCodeThatIsTested(t *testing.T) {
	sources, err := filepath.Glob("examples/*/main.go")
	require.NoError(t, err)
	sources = append(sources,
		"example_test.go", "example_choosing_test.go", "example_hedge_test.go", "example_testing_test.go")
	for _, document := range []string{"README.md", "docs/choosing.md", "docs/testing.md"} {
		missing, err := snippets.Missing(document, sources...)
		require.NoError(t, err)
		assert.Empty(t, missing, "of %s", document)
	}
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

// table returns the first table after a heading: its cells by the text of the first column.
func table(t *testing.T, document, heading string) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(document)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(content), heading)
	require.True(t, found, document)
	_, section, found = strings.Cut(section, "\n|")
	require.True(t, found, document)
	section, _, _ = strings.Cut(section, "\n\n")
	lines := map[string][]string{}
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !strings.HasPrefix(cells[0], "---") {
			lines[cells[0]] = cells[1:]
		}
	}
	return lines
}

// What docs/design.md names must exist.
func TestDesignNamesTestsAndFilesThatExist(t *testing.T) {
	design, err := os.ReadFile("docs/design.md")
	require.NoError(t, err)
	var tests strings.Builder
	paths, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		tests.Write(content)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(design), -1)
	require.Greater(t, len(named), 20)
	for _, name := range named {
		assert.Contains(t, tests.String(), "func "+name[1]+"(")
	}
	files := table(t, "docs/design.md", "## The files\n")
	require.Greater(t, len(files), 10)
	for cell := range files {
		for _, path := range strings.Split(cell, " · ") {
			if path != "file" && path != "" {
				_, err := os.Stat(strings.TrimSuffix(path, "/…"))
				assert.NoError(t, err)
			}
		}
	}
}

func TestDocsLinksLeadSomewhere(t *testing.T) {
	documents := []string{"README.md", "testdata/conformance/README.md"}
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
