// Package waiting is for tests that wait, for a socket or for a process, and hardly compute.
package waiting

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Main runs the tests of a package, as its TestMain. Unless the command says how many parallel tests run side by side,
// as many do as parallel says, and not only one for each processor.
func Main(m *testing.M, parallel int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(parallel))
	}
	os.Exit(m.Run())
}
