//go:build race

package fault_test

// thinned is of how many downloads one is made. All of them run the same code, and would keep the detector busy for
// a minute. With five, each word of a download's name is in the name of one that is made.
const thinned = 5
