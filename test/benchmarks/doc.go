// Package benchmarks compares retryhttp with other Go packages that retry HTTP
// requests, side by side in one process, and writes a report. It is a module of
// its own so that they stay out of the main one, and a test because some of it
// runs in testing/synctest bubbles, which need one:
//
//	go test -run TestReport -timeout 60m -report ../../docs -rounds 21
//
// A package is added by an entry in peers. What is said in words is in
// report.md.tmpl.
package benchmarks
