// Package sockets tests this library together with net/http's own clients and servers. Most of
// the tests need real sockets: their buffers, their resets, and the moment at which net/http
// stops sending. There is nothing to import here.
package sockets
