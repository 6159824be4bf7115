// Package published publishes the modules of this repository as a release does, and builds the
// modules of strangers against them. A build in this tree proves less: here a replace puts the
// root of the tree in the place of the root that a go.mod requires, and otelretry could import
// the internal packages of that root.
//
// The published modules go to a proxy of files. They and their dependencies go to a module cache
// that ends with the tests. No release is made, and the module cache of the user stays as it is.
//
// The command release makes the commits of a release, and runs these tests in them with -released.
//
// The go command does not see that files outside of this module have changed. After a pass, run
// the tests again with -count=1.
package published
