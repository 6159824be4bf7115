package http2_test

import (
	"net/http"
	"slices"

	"golang.org/x/net/http2"

	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// frameFault is a fault that needs more than a handler.
type frameFault struct {
	fault.Fault
	greet  func(*conn)   // instead of serving the connection
	meet   func(*stream) // instead of the handler, which never sees the request
	window uint32        // of each stream at first
}

const (
	window      = 64 << 10 // for faults that do not stall
	unavailable = http.StatusServiceUnavailable
)

// handled is a fault of a server that has begun to process the request.
func handled(name string, e fault.Effect, answer func(*fault.Exchange, *stream)) *frameFault {
	return &frameFault{window: window, Fault: fault.Fault{Name: name, Effect: e, Answer: func(x *fault.Exchange) {
		answer(x, x.Writer().(*stream))
	}}}
}

// unseen is a fault of a server that does not process the request. The base sends such a request
// again by itself, whatever its method, like a request on a connection that was used before and
// has died.
func unseen(name string, meet func(*stream)) *frameFault {
	return &frameFault{window: window, Fault: fault.Fault{Name: name, Effect: fault.Fails, Reused: true}, meet: meet}
}

func refuse(s *stream) { s.reset(http2.ErrCodeRefusedStream) }

// leave reports that the stream was not processed, nor any later stream.
func leave(s *stream) {
	s.conn.goAway(max(s.number, 2)-2, http2.ErrCodeNo)
	s.conn.end()
}

func whole(x *fault.Exchange, then func()) {
	if x.Receive() {
		then()
	}
}

// resetWith resets the stream: before there is an answer, and in an answer.
func resetWith(code http2.ErrCode) []*frameFault {
	return []*frameFault{
		handled("RST_STREAM "+code.String()+" in the place of an answer", fault.Fails, func(x *fault.Exchange, s *stream) {
			x.Receive()
			s.reset(code)
		}),
		handled("RST_STREAM "+code.String()+" in a 503", fault.Fails, func(x *fault.Exchange, s *stream) {
			x.Receive()
			x.Head(unavailable, 100, "busy")
			s.reset(code)
		}),
		handled("RST_STREAM "+code.String()+" in a success", fault.Spoils, func(x *fault.Exchange, s *stream) {
			whole(x, func() { x.Head(http.StatusOK, fault.AnswerSize, "received") })
			s.reset(code)
		}),
	}
}

// goneWith makes the server go after it has read the request, and report that it may have
// processed the request.
func goneWith(code http2.ErrCode) *frameFault {
	return handled("GOAWAY "+code.String()+" that includes the request", fault.Fails, func(x *fault.Exchange, s *stream) {
		x.Receive()
		s.conn.goAway(s.number, code)
		s.conn.end()
		x.Hang()
	})
}

func noMore(streams uint32) func(*fault.Exchange, *stream) {
	return func(x *fault.Exchange, s *stream) {
		s.conn.write(func() {
			_ = s.conn.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: streams})
		})
		x.Head(unavailable, 4, "busy")
	}
}

func stalls(name string, window uint32) *frameFault {
	f := handled(name, fault.Hangs, func(x *fault.Exchange, s *stream) {
		s.in.fill()
		x.Hang()
	})
	f.NeedsBody, f.window = true, window
	return f
}

// answerInHTTP1 is the answer of a server that takes the preface for a request. It first reads the
// request to its end. A base that still sends may see a closed connection, and not why it was
// closed: net/http marks the connection as closed before it ends the streams.
func answerInHTTP1(c *conn) {
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		if end, ok := f.(interface{ StreamEnded() bool }); ok && end.StreamEnded() {
			break
		}
	}
	_, _ = c.out.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
	c.end()
}

// greetedWindow is how much of a body a client sends to a server that sends no frame (RFC
// 9113, section 6.9.2).
const greetedWindow = 65_535

var frameFaults = append([]*frameFault{
	unseen("REFUSED_STREAM", refuse),
	unseen("GOAWAY that leaves the request out", leave),
	handled("GOAWAY that includes the request, which is answered", fault.Harmless, func(x *fault.Exchange, s *stream) {
		s.conn.goAway(s.number, http2.ErrCodeNo)
		x.Succeed()
	}),
	goneWith(http2.ErrCodeNo),
	goneWith(http2.ErrCodeProtocol),
	goneWith(http2.ErrCodeEnhanceYourCalm),
	handled("RST_STREAM ENHANCE_YOUR_CALM", fault.Fails, func(x *fault.Exchange, s *stream) {
		x.Glance()
		s.reset(http2.ErrCodeEnhanceYourCalm)
	}),
	handled("503 in the middle of the request, which is then reset", fault.Fails, func(x *fault.Exchange, s *stream) {
		x.Glance()
		x.Head(unavailable, 4, "busy")
	}),
	handled("503 in the middle of the request, which is then read", fault.Fails, func(x *fault.Exchange, s *stream) {
		x.Glance()
		x.Head(unavailable, 4, "busy")
		s.finish(nil)
		x.Receive()
	}),
	handled("a header block that is garbage", fault.Fails, func(x *fault.Exchange, s *stream) {
		x.Receive()
		s.conn.write(func() {
			_ = s.conn.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: s.number, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true,
			})
		})
		x.Hang()
	}),
	handled("a flood of PINGs before it is well", fault.Harmless, func(x *fault.Exchange, s *stream) {
		for n := range 300 {
			s.conn.write(func() { _ = s.conn.framer.WritePing(false, [8]byte{byte(n)}) })
		}
		x.Succeed()
	}),
	handled("503, and no stream more", fault.Fails, noMore(0)),
	handled("503, and one stream at a time", fault.Fails, noMore(1)),
	handled("503 with a trailer", fault.Fails, func(x *fault.Exchange, s *stream) {
		x.Receive()
		x.Head(unavailable, -1, "busy")
		s.finish(http.Header{"Sum": {"none"}})
	}),
	handled("a success with a trailer", fault.Harmless, func(x *fault.Exchange, s *stream) {
		x.Succeed()
		s.finish(http.Header{"Sum": {"none"}})
	}),
	stalls("a window that never opens", 0),
	stalls("a window that stalls", 16<<10),
	{window: window, Fault: fault.Fault{Name: "an answer in HTTP/1", Effect: fault.Fatal}, greet: answerInHTTP1},
}, slices.Concat(resetWith(http2.ErrCodeInternal), resetWith(http2.ErrCodeCancel), resetWith(http2.ErrCodeNo))...)
