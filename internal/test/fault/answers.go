package fault

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

const unavailable = http.StatusServiceUnavailable

// Answers are the faults of a server that any HTTP server can have, over any
// version of the protocol.
var Answers = []*Fault{
	{Name: "503 when it has read the request", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.Head(unavailable, 4, "busy")
	}},
	{Name: "503 before it reads the request", Effect: Fails, Answer: func(x *Exchange) {
		x.Head(unavailable, 4, "busy")
	}},
	{Name: "503 in the middle of the request", Effect: Fails, Answer: func(x *Exchange) {
		x.Glance()
		x.Head(unavailable, 4, "busy")
	}},
	{Name: "503 before it reads the request, which it then reads", Effect: Fails, Answer: func(x *Exchange) {
		x.Head(unavailable, -1, "busy")
		x.Receive()
	}},
	{
		Name:   "503 before it reads the request, of which it then aborts the answer",
		Effect: Fails,
		Answer: func(x *Exchange) {
			x.Head(unavailable, 100, "busy")
			x.Glance()
			x.abort()
		},
	},
	{Name: "429 with a Retry-After that is past", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.w.Header().Set("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")
		x.Head(http.StatusTooManyRequests, 0, "")
	}},
	{Name: "408, and the connection closed", Effect: Fails, GoesAway: true, Answer: func(x *Exchange) {
		x.w.Header().Set("Connection", "close")
		x.Head(http.StatusRequestTimeout, 0, "")
	}},
	{Name: "no answer to the request", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.abort()
	}},
	{Name: "no answer to half a request", Effect: Fails, Answer: func(x *Exchange) {
		x.Glance()
		x.abort()
	}},
	{Name: "503 whose body is aborted", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.Head(unavailable, 100, "busy")
		x.abort()
	}},
	{Name: "503 whose body stalls", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.stalls()
		x.Head(unavailable, 100, "busy")
		x.Hang()
	}},
	{Name: "503 whose body never ends", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.Head(unavailable, -1, "")
		x.pour(x, answerTo(x.id), 0)
	}},
	{Name: "503 whose body trickles and never ends", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.stalls()
		x.Head(unavailable, -1, "")
		x.pour(x, []byte("."), time.Millisecond)
	}},
	{Name: "early hints before it is well", Effect: Harmless, Answer: func(x *Exchange) {
		for range 3 {
			x.w.WriteHeader(http.StatusEarlyHints)
		}
		x.Succeed()
	}},
	{Name: "early hints, and no answer", Effect: Fails, Answer: func(x *Exchange) {
		x.Receive()
		x.w.WriteHeader(http.StatusEarlyHints)
		x.abort()
	}},
	{Name: "early hints, and a stall", Effect: Hangs, Answer: func(x *Exchange) {
		x.Receive()
		x.w.WriteHeader(http.StatusEarlyHints)
		x.Hang()
	}},
	{Name: "a stall when it has read the request", Effect: Hangs, Answer: func(x *Exchange) {
		x.Receive()
		x.Hang()
	}},
	{Name: "a stall before it reads the request", Effect: Hangs, Unread: true, Answer: func(x *Exchange) {
		x.Hang()
	}},
	{Name: "a success whose body is aborted", Effect: Spoils, Answer: func(x *Exchange) {
		x.Receive()
		x.Head(http.StatusOK, AnswerSize, "received")
		x.abort()
	}},
	{Name: "a success whose body stalls", Effect: SpoilHangs, Answer: func(x *Exchange) {
		x.Receive()
		x.stalls()
		x.Head(http.StatusOK, AnswerSize, "received")
		x.Hang()
	}},
	{Name: "a success whose body never ends", Effect: SpoilHangs, Answer: func(x *Exchange) {
		x.Receive()
		x.stalls()
		x.Head(http.StatusOK, -1, "")
		x.hangs()
		x.pour(x, []byte("received"), 50*time.Millisecond) // for many seconds, at many requests
	}},
}

// WireAnswers are the faults of a server that does not speak HTTP/1 well.
var WireAnswers = []*Fault{
	wire("garbage", Fails, "SSH-2.0-OpenSSH_9.9\r\n"),
	wire("an answer of another protocol", Fails, "RTSP/1.0 200 OK\r\n\r\n"),
	wire("half a status line", Fails, "HTTP/1.1 2"),
	wire("half a header", Fails, "HTTP/1.1 200 OK\r\nContent-Le"),
	wire("a header line without a colon", Fails, "HTTP/1.1 200 OK\r\nContent-Length 5\r\n\r\nhello"),
	wire("a Content-Length below zero", Fatal, "HTTP/1.1 503 Busy\r\nContent-Length: -5\r\n\r\nhello"),
	wire("two Content-Lengths", Fails, "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhello"),
	wire("a 503 shorter than its Content-Length", Fails, "HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nbusy"),
	wire("a 503 longer than its Content-Length", Fails, "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy and more"),
	wire("a 503 and another answer", Fails,
		"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
	wire("a 503 with a chunk of no size", Fails, "HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nbusy\r\n"),
	wire("a success shorter than its Content-Length", Spoils, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nreceived"),
	wire("a success with a chunk of no size", Spoils,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nbusy\r\n"),
	wire("a success whose last chunk is missing", Spoils,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nreceived\r\n"),
	wire("100 Continue, and no answer", Fails, "HTTP/1.1 100 Continue\r\n\r\n"),
	wire("a thousand interim responses, and no answer", Fails,
		strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style; nopush\r\n\r\n", 1000)),
	{Name: "a header that never ends", Effect: Fails, Wire: true, Answer: func(x *Exchange) {
		x.Receive()
		c := x.conn("HTTP/1.1 200 OK\r\n")
		for {
			if _, err := fmt.Fprintf(c, "X: %s\r\n", strings.Repeat("x", AnswerSize)); err != nil {
				_ = c.Close()
				return
			}
		}
	}},
	{Name: "a header that stalls", Effect: Hangs, Wire: true, Answer: func(x *Exchange) {
		x.Receive()
		c := x.conn("HTTP/1.1 200 OK\r\nContent-")
		x.hangs()
		x.pour(c, nil, time.Millisecond) // writing nothing shows whether the connection is still there
		_ = c.Close()
	}},
	{Name: "a header that trickles and never ends", Effect: Hangs, Wire: true, Answer: func(x *Exchange) {
		x.Receive()
		c := x.conn("HTTP/1.1 200 OK\r\nX: ")
		x.hangs()
		x.pour(c, []byte("."), time.Millisecond)
		_ = c.Close()
	}},
}

// wire is a server that reads the request, sends text, and closes the connection.
func wire(name string, e Effect, text string) *Fault {
	return &Fault{Name: name, Effect: e, Wire: true, Answer: func(x *Exchange) {
		whole := x.Receive()
		if whole && strings.HasPrefix(text, "HTTP/1.1 200 ") {
			x.answered(http.StatusOK)
		}
		_ = x.conn(text).Close()
	}}
}
