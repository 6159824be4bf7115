package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ablated is added to each package that has a mechanism.
const ablated = `package %s

import "os"

var ablated = os.Getenv("RETRYHTTP_ABLATED")

func off(mechanism string) bool { return mechanism == ablated }

func onlyIf[T any](really bool, v T) (out T) {
	if really {
		out = v
	}
	return out
}
`

// An Ablation is the tests of this package, built from a copy of the root module in which each
// mechanism can be switched off. The overlay of the go command makes the copy, so nothing of it is in
// what users compile.
type Ablation struct{ binary string }

// NewAblation builds the tests from the root module in a directory.
func NewAblation(t *testing.T, root string) Ablation {
	t.Helper()
	dir := t.TempDir()
	overlay := map[string]string{}
	for file, text := range withSwitches(t, root) {
		overlay[file] = filepath.Join(dir, strconv.Itoa(len(overlay))+".go")
		require.NoError(t, os.WriteFile(overlay[file], []byte(text), 0o600))
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, replace, 0o600))
	a := Ablation{binary: filepath.Join(dir, "ablated.test")}
	const tests = "github.com/retryhttp/retryhttp/retrylab/simulation/sim"
	out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", a.binary, tests).CombinedOutput()
	require.NoError(t, err, string(out))
	return a
}

// withSwitches returns the files of the root module that have a mechanism, with a switch for each.
func withSwitches(t *testing.T, root string) (texts map[string]string) {
	t.Helper()
	texts = map[string]string{}
	for _, m := range Mechanisms {
		file := filepath.Join(root, m.file)
		text, ok := texts[file]
		if !ok {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			text = string(content)
		}
		for edit := range slices.Chunk(m.edits, 2) {
			require.Equal(t, 1, strings.Count(text, edit[0]), "%s: %q in %s", m.Name, edit[0], m.file)
			text = strings.Replace(text, edit[0], fmt.Sprintf(edit[1], m.Name), 1)
		}
		texts[file] = text
		clause := text[strings.Index(text, "\npackage ")+1:]
		texts[filepath.Join(filepath.Dir(file), "ablated.go")] = fmt.Sprintf(ablated, strings.Fields(clause)[1])
	}
	return texts
}

// Cost runs a trial without a mechanism, or with all of them if the mechanism is "".
func (a Ablation) Cost(t *testing.T, trial, without string, seeds int) float64 {
	t.Helper()
	run := exec.Command(a.binary, "-test.run", "^TestTrial$", "-trial", trial, "-seeds", strconv.Itoa(seeds))
	run.Env = append(os.Environ(), "RETRYHTTP_ABLATED="+without)
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	_, rest, found := strings.Cut(string(out), "cost: ")
	require.True(t, found, string(out))
	number, _, _ := strings.Cut(rest, "\n")
	cost, err := strconv.ParseFloat(number, 64)
	require.NoError(t, err)
	return cost
}
