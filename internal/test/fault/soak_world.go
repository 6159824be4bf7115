package fault

import (
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/retryhttp/retryhttp"
)

// Protocol is what the clients of a Soak speak.
type Protocol struct {
	Name  string
	Major int // of HTTP's version
	// Drops means that servers close connections that have other requests, and that no caller gives up an
	// upload. If both met over HTTP/2, net/http would look at whether the body was read while it may still
	// be reading it: in the RoundTrip that resends the request, and in the stream's own goroutine. That is
	// harmless, but it is a data race, and not one of this module's.
	Drops bool
	// Twice means that the base may close a body twice.
	Twice bool
	Start func(Soak, *Protocol, *Server) (*World, error)
}

// World is a Server in its place, and the way to it.
type World struct {
	URL   func(n uint64) string // of the n-th request, without its path
	Base  http.RoundTripper
	Conns func() int // open
	Close func()     // ends everything, after the Server has been closed
}

var (
	HTTP1       = &Protocol{Name: "HTTP/1", Major: 1, Start: overTCP}
	HTTP2       = &Protocol{Name: "HTTP/2", Major: 2, Start: overTCP}
	HTTP2GoAway = &Protocol{Name: "HTTP/2 with GOAWAYs", Major: 2, Drops: true, Start: overTCP}
)

// patience is how long something hangs at most: for longer than anybody waits. Where nobody gives up an
// upload, the hang ends by itself.
func (p *Protocol) patience() time.Duration {
	if p.Drops {
		return attemptTimeout
	}
	return 5 * time.Second
}

// others is how many hosts there are beside one. With a new host for each request, what the process keeps for a host
// would grow for hours: budgets, Gates and Hedges remember up to 4,096.
const others = 50

// overTCP starts a world in which one of fifty requests goes to another host.
func overTCP(s Soak, p *Protocol, server *Server) (*World, error) {
	h := httptest.NewUnstartedServer(server)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.Config.ConnContext = WithConn
	h.Config.Protocols = new(http.Protocols)
	h.Config.Protocols.SetHTTP1(p.Major == 1)
	h.Config.Protocols.SetUnencryptedHTTP2(p.Major == 2)
	h.Start()
	proxy, err := NewProxy(h.Listener.Addr().String(), &chance{random: rand.New(rand.NewPCG(s.Seed, 1<<63))})
	if err != nil {
		h.Close()
		return nil, err
	}
	proxy.Patience = server.Patience
	return &World{
		URL: func(n uint64) string {
			if n%50 == 0 {
				return "http://" + strconv.FormatUint(n/50%others, 10) + ".example"
			}
			return h.URL
		},
		Base: retryhttp.NewBase(&http.Transport{
			DialContext:            proxy.DialContext,
			Protocols:              h.Config.Protocols,
			MaxIdleConnsPerHost:    s.Clients,
			IdleConnTimeout:        5 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: attemptTimeout, PingTimeout: attemptTimeout},
		}),
		Conns: proxy.Conns,
		Close: func() {
			proxy.Close()
			h.Close()
		},
	}, nil
}

// chance orders what the connections of a soak meet.
type chance struct{ random *rand.Rand }

func (c *chance) Refuse() bool { return c.random.IntN(20) == 0 }

func (c *chance) Next() *Link {
	if c.random.IntN(2) == 0 {
		return nil
	}
	cut := func() Cut {
		return Cut{After: int64(c.random.ExpFloat64() * 200_000), How: How(c.random.IntN(int(Stall) + 1))}
	}
	return &Link{Up: cut(), Down: cut(), Reused: c.random.IntN(4) == 0, Trickle: c.random.IntN(50) == 0}
}
