package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var logged = regexp.MustCompile(`(?:slog\.Level(?:Info|Debug), |p\.warn\()"([^"]*)"`)

func TestOperatingListsEachLogRecord(t *testing.T) {
	atTheTop(t)
	records := logged.FindAllStringSubmatch(read(t, "log.go"), -1)
	require.Len(t, records, 5)
	runbook := read(t, "docs/operating.md")
	for _, r := range records {
		assert.True(t, strings.Contains(runbook, "| `"+r[1]+"` |"), r[1])
	}
}
