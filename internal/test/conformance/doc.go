// Package conformance holds this library to the vectors in testdata/conformance. There is
// nothing to import here. The vectors are meant for other languages too, and the README there
// says what their fields mean.
package conformance
