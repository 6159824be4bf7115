// Package http2 holds retries against a server that misbehaves in the frames of
// HTTP/2, with the clients of net/http and of golang.org/x/net/http2 as base. It
// is all tests.
package http2
