//go:build race

package fault_test

// thinned is of how many downloads one is made. All of them run the same code, and would keep the detector busy for
// a minute. With five, each word of a download's name is in the name of one that is made.
const thinned = 5

// lanes is how many cases that do not wait run at a time. With more, the uploads of those that wait take longer than
// their attempts may, again and again.
const lanes = 8
