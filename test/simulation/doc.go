// Package simulation writes the report about the experiments of its package sim, and draws their
// plots. It is a module of its own so that the plotting library
// stays out of the main one, and a test because the experiments run in
// testing/synctest bubbles, which need one:
//
//	go test -run TestReport -timeout 30m -report ../../docs
package simulation
