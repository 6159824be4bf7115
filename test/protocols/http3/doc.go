// Package http3 holds retries over HTTP/3, with quic-go as base. It is all tests.
package http3
