package benchmarks

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// versions returns the version of each module that this program was built with.
// It asks the go command, since the build information of a test names no
// dependencies.
func versions() (map[string]string, error) {
	const format = "{{.Path}} {{if .Replace}}this tree{{else}}{{.Version}}{{end}}"
	out, err := exec.Command("go", "list", "-m", "-f", format, "all").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	found := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[path] = version
	}
	return found, nil
}

func machine() string {
	return fmt.Sprintf("%s, %d cores, %s, %s/%s",
		processor(), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo") // elsewhere than on Linux there is none
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, " \t:\n")
		}
	}
	return "unknown processor"
}
