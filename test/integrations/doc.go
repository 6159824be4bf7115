// Package integrations shows how clients that others made are given a transport
// that retries, and tests that they work with it. There is nothing to import
// here: each _test.go file is about one client, and begins with an Example that
// is the shortest correct way to wire it. In migrating are the Examples of moving
// from other libraries.
package integrations
