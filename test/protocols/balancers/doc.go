// Package balancers holds retries against processes behind real balancers of connections, HAProxy
// and nginx. It is all tests.
package balancers
