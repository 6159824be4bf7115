package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/snippets"
)

func TestREADMEShowsWhatTheQuickstartPrints(t *testing.T) {
	atTheTop(t)
	output, err := snippets.WithoutIndent("examples/quickstart/output.txt")
	require.NoError(t, err)
	readme, err := snippets.WithoutIndent("README.md")
	require.NoError(t, err)
	assert.True(t, strings.Contains(readme, "```\n"+output+"```"), "the README does not show:\n%s", output)
}

func TestREADMEIsShort(t *testing.T) {
	atTheTop(t)
	assert.LessOrEqual(t, strings.Count(read(t, "README.md"), "\n"), 120)
}

// The README compares a few libraries in a few lines of the last report's table.
func TestREADMEQuotesTheComparison(t *testing.T) {
	atTheTop(t)
	quoted := table(t, "README.md", "## Compared\n")
	full := table(t, "docs/benchmarks.md", "## At a glance\n")
	require.Len(t, quoted[""], 4)
	require.Len(t, quoted, 4, "three lines and the head")
	for line, cells := range quoted {
		_, found := full[line]
		require.True(t, found, "the report has no line %q", line)
		for i, cell := range cells {
			column := slices.Index(full[""], quoted[""][i])
			require.NotEqual(t, -1, column, quoted[""][i])
			assert.Equal(t, full[line][column], cell, "%s of %s", line, quoted[""][i])
		}
	}
}

func TestREADMEQuotesTheSimulation(t *testing.T) {
	atTheTop(t)
	short := table(t, "docs/simulation.md", "## In short\n")
	with, without := short["retryhttp, by default"], short["retries without a budget"]
	require.Len(t, with, 8)
	require.Len(t, without, 8)
	assertQuotes(t, "README.md", "in the small service's partial failure, "+with[2]+" of the requests fail, and "+without[2]+" without a budget.")
}

// Dependencies that only some users need, such as OpenTelemetry, are in nested
// modules.
func TestModuleDependsOnNoMoreThanTheREADMESays(t *testing.T) {
	atTheTop(t)
	var direct []string
	for _, line := range strings.Split(read(t, "go.mod"), "\n") {
		module, version, found := strings.Cut(strings.TrimSpace(line), " v")
		if found && !strings.Contains(version, "indirect") {
			direct = append(direct, module)
		}
	}
	assert.ElementsMatch(t,
		[]string{"github.com/hashicorp/go-cleanhttp", "github.com/stretchr/testify", "golang.org/x/time"}, direct)
}

// Figures of the simulations that other documents quote. Each run of a report changes some.
func TestDocsQuoteTheSimulation(t *testing.T) {
	atTheTop(t)
	times := func(cells []string) string { // from the median to the longest
		return strings.TrimSuffix(cells[0], " s") + " to " + cells[1]
	}
	recovery := map[string]string{} // by the number of processes and the budget
	for _, line := range rowsOf(t, "docs/simulation-tables.md", "## One budget for a fleet\n") {
		recovery[line[0]+" "+line[1]] = times(line[3:])
	}
	spike := table(t, "docs/simulation-tables.md", "## A spike that outlasts itself\n")
	herd := table(t, "docs/simulation-tables.md", "## A herd\n")
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
		for _, quote := range quoted {
			assertQuotes(t, document, quote)
		}
	}
}

// assertQuotes asserts that a document has a text, no matter where its lines end.
func assertQuotes(t *testing.T, document, quote string) {
	t.Helper()
	text := strings.Join(strings.Fields(read(t, document)), " ")
	assert.True(t, strings.Contains(text, quote), "%s does not say %q", document, quote)
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
	_, section, found := strings.Cut(read(t, document), heading)
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

// A survivor whose code is gone says nothing any more.
func TestSurvivorsOfTheMutationTestsAreInTheCode(t *testing.T) {
	atTheTop(t)
	row := regexp.MustCompile("(?m)^\\| ([\\w/]+\\.go) \\| `([^`]+)`")
	survivors := row.FindAllStringSubmatch(read(t, "docs/mutation.md"), -1)
	assert.Greater(t, len(survivors), 20)
	for _, s := range survivors {
		if leftOut(t, s[1]) {
			continue
		}
		assert.Contains(t, read(t, s[1]), strings.ReplaceAll(s[2], `\|`, "|"), s[1])
	}
}
