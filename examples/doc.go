// Package examples holds no code of its own. Each directory below it is a
// program of one screen that runs against a server of its own:
//
//	go run ./examples/quickstart
//
// and beside each is output.txt, which is what it prints, every time.
package examples
