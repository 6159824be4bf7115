// Package bubble runs a function with a *testing.T in a program that is no test. Bubbles of
// testing/synctest need one.
package bubble

import (
	"flag"
	"os"
	"testing"
)

// Main calls f as a test of the testing package, and exits with what f returns. So the testing package
// does not come to print how the test ended.
//
// testing.Main is exported for programs that do what go test does. It is used in place of
// testing.RunTests, which runs nothing here: its list of processors is set by testing.Main alone. The
// flags of the testing package are declared and parsed on a flag set of their own, so that the flags of
// the program are none of theirs.
func Main(f func(t *testing.T) (code int)) {
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	testing.Init()
	_ = flag.CommandLine.Parse(nil)
	testing.Main(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "main", F: func(t *testing.T) { os.Exit(f(t)) }}},
		nil, nil,
	)
}
