// Package bubble runs a function with a *testing.T in a program that is no test. Bubbles of
// testing/synctest need one.
package bubble

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main calls f as a test of the testing package, and exits with what f returns. f gets the standard
// output. Meanwhile os.Stdout is the null device, because the testing package writes to it.
//
// testing.Main is exported for programs that do what go test does. It is used in place of
// testing.RunTests, which runs nothing here: its list of processors is set by testing.Main alone. The
// flags of the testing package are declared and parsed on a flag set of their own, so that the flags of
// the program are none of theirs.
func Main(f func(t *testing.T, stdout *os.File) (code int)) {
	stdout := os.Stdout
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Stdout = null
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	testing.Init()
	_ = flag.CommandLine.Parse(nil)
	testing.Main(
		func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "main", F: func(t *testing.T) { os.Exit(f(t, stdout)) }}},
		nil, nil,
	)
}
