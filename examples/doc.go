// Package examples holds no code of its own. Each directory below it is a
// program of one screen that runs against a server of its own:
//
//	go run ./examples/quickstart
//
// Beside each is its output, in output.txt. If the output differs from run to run,
// output.regexp matches it.
package examples
