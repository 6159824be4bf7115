package otelretry

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersionIsTheOneInTheProgram(t *testing.T) {
	other := &debug.Module{Path: "github.com/retryhttp/retryhttp", Version: "v0.3.0"}
	for name, tt := range map[string]struct {
		module debug.Module
		want   string
	}{
		"a release":             {debug.Module{Path: ScopeName, Version: "v0.2.1"}, "0.2.1"},
		"a commit":              {debug.Module{Path: ScopeName, Version: "v0.2.2-0.20260102030405-0123456789ab"}, "0.2.2-0.20260102030405-0123456789ab"},
		"a fork":                {debug.Module{Path: ScopeName, Version: "v0.2.1", Replace: &debug.Module{Path: "fork.example", Version: "v0.9.0"}}, "0.9.0"},
		"a directory":           {debug.Module{Path: ScopeName, Version: "v0.2.1", Replace: &debug.Module{Path: "../otelretry"}}, ""},
		"a module of workspace": {debug.Module{Path: ScopeName, Version: "(devel)"}, ""},
		"none":                  {debug.Module{Path: "example.com/other", Version: "v1.0.0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, versionIn(&debug.BuildInfo{Deps: []*debug.Module{other, &tt.module}}))
		})
	}
}
