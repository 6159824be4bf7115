package docs_test

import (
	"go/scanner"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A comment behind code is short. A longer comment stands above the code, where it has room.
func TestTrailingCommentsEndBeforeColumn100(t *testing.T) {
	atTheTop(t)
	for _, pattern := range []string{"*.go", "internal/*/*.go", "otelretry/*.go", "redisbudget/*.go", "retrylab/*.go", "retrylab/*/*.go"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for line, text := range trailingComments(t, path) {
				width := len([]rune(strings.ReplaceAll(text, "\t", "    ")))
				assert.Less(t, width, 100, "%s:%d", path, line)
			}
		}
	}
}

// trailingComments returns the lines of a file that have code and then a comment, by number.
func trailingComments(t *testing.T, path string) map[int]string {
	t.Helper()
	source := read(t, path)
	lines := strings.Split(source, "\n")
	fset := token.NewFileSet()
	file := fset.AddFile(path, -1, len(source))
	var s scanner.Scanner
	s.Init(file, []byte(source), nil, scanner.ScanComments)
	found := map[int]string{}
	for {
		pos, kind, _ := s.Scan()
		if kind == token.EOF {
			return found
		}
		at := file.Position(pos)
		if kind == token.COMMENT && strings.TrimSpace(lines[at.Line-1][:at.Column-1]) != "" {
			found[at.Line] = lines[at.Line-1]
		}
	}
}
