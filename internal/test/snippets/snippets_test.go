package snippets_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/test/snippets"
)

func TestABlockThatStandsNowhereIsMissing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	source := write("source.go", "func f() {\n\tif ok {\n\t\tshown()\n\t}\n}\n")
	document := write("document.md", "```go\nif ok {\n\tshown()\n}\n```\n\n```go\nold()\n```\n")
	missing, err := snippets.Missing(document, source)
	require.NoError(t, err)
	assert.Equal(t, []string{"old()\n"}, missing)

	_, err = snippets.Missing(write("words.md", "none"), source)
	assert.ErrorContains(t, err, "shows no code")
	_, err = snippets.Missing(document, filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}
