//go:build race

package benchmarks

const raceDetector = true
