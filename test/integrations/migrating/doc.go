// Package migrating shows how code that retries with another library is moved to
// retryhttp, and tests what docs/migrating.md says of the differences. There is
// nothing to import here: each _test.go file that is named after a library begins
// with an Example of what is there before, and one of what comes after.
package migrating
