//go:build race

package fault_test

// thinned is how many downloads one is made of. All of them run the same code, and would keep the detector busy for
// a minute. It is a prime, so that each property of a download is among those made.
const thinned = 7
