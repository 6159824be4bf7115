package otelretry

import (
	"runtime/debug"
	"strings"
)

// version returns the version of this module that is in the program, or "" if that is not known.
// The go command knows the version after each release, whereas a constant could be forgotten.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return versionIn(info)
}

func versionIn(info *debug.BuildInfo) string {
	for _, m := range info.Deps {
		if m.Path != ScopeName { // the module's path, too
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if number, isVersion := strings.CutPrefix(m.Version, "v"); isVersion {
			return number
		}
	}
	return ""
}
