package examples

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFleetPrintsItsOutput(t *testing.T) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "run", "./fleet")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s", &stderr)
	want, err := os.ReadFile("fleet/output.txt")
	require.NoError(t, err)
	assert.Equal(t, string(want), stdout.String())
}
