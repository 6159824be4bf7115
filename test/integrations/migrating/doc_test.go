package migrating_test

import (
	"path/filepath"
	"testing"

	"github.com/retryhttp/retryhttp/internal/test/snippets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDocumentShowsOnlyCodeThatIsTested(t *testing.T) {
	sources, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	missing, err := snippets.Missing("../../../docs/migrating.md", sources...)
	require.NoError(t, err)
	assert.Empty(t, missing)
}
