// Package examples has no code of its own. Each directory below it is a program of one screen
// that runs against its own server:
//
//	go run ./examples/quickstart
//
// The output of each program is in output.txt beside it. If the output differs from run to
// run, output.regexp matches it.
package examples
