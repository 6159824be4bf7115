package zoo

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/cristalhq/hedgedhttp"
	"github.com/gregjones/httpcache"
	"github.com/icholy/digest"
	"github.com/klauspost/compress/gzhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"golang.org/x/oauth2"

	"github.com/retryhttp/retryhttp"
)

// animal is a RoundTripper that somebody else wrote, or could have written.
type animal struct {
	name  string
	wrap  func(next http.RoundTripper, target *url.URL) http.RoundTripper
	above bool // the Transport is its base; otherwise it is the Transport's

	// These make a difference to what can be expected.

	reads      bool // it is used for GET alone
	challenged bool // the server asks it for credentials
	hides      bool // a Transport below sees a stream instead of a body that can seek
	keeps      int  // a Transport below can send a stream of up to this size again; 0: kept
	byMethod   bool // a Transport below repeats what its method allows, whatever the key
	http2      bool // net/http speaks HTTP/2 with the server
	wraps      bool // a failed response that stalls is read until the request's context ends
	encodes    bool // after a retry the response's body is left encoded
	hedges     bool // on a slow machine it sends a request twice, and either answer may come first

	// These say how it treats the body that it is given.

	forgets      bool // it never closes it
	forgetsFirst bool // it never closes it, if there is a GetBody
	forgetsMore  bool // it does not close all that GetBody returned
	rewinds      bool // it calls GetBody after a response, although net/http may still look for the end of the first body
	readsAhead   bool // it reads what GetBody returns, then sends the first: if both are one reader, nothing is left
}

// hedgedhttp comes first, because its goroutines stay for ten seconds.
var animals = []animal{
	{name: "hedgedhttp", wrap: hedged,
		reads:  true, // it sends copies side by side, which share one body, whatever the method
		hedges: true,
	},
	{name: "hedgedhttp above", wrap: hedged, above: true,
		reads:  true, // like hedgedhttp below a Transport
		hedges: true,
	},
	{name: "gzhttp gzip", wrap: func(next http.RoundTripper, _ *url.URL) http.RoundTripper {
		return gzhttp.Transport(next, gzhttp.TransportEnableZstd(false))
	},
		wraps: true, // its decoders must not be closed beside a Read
	},
	{name: "gzhttp zstd", wrap: func(next http.RoundTripper, _ *url.URL) http.RoundTripper {
		return gzhttp.Transport(next, gzhttp.TransportEnableGzip(false))
	},
		wraps: true, // like gzip
	},
	{name: "gzhttp above", above: true, wrap: func(next http.RoundTripper, _ *url.URL) http.RoundTripper {
		return gzhttp.Transport(next)
	}},
	{name: "digest", wrap: digested,
		challenged:   true,
		forgetsFirst: true, // it sends copies from GetBody alone
		rewinds:      true, // after a 401
	},
	{name: "digest above", wrap: digested, above: true,
		challenged:   true,
		forgetsFirst: true,        // like digest below a Transport
		rewinds:      true,        // like digest below a Transport
		keeps:        math.MaxInt, // it buffers a body without a GetBody, and gives it one
	},
	{name: "otelhttp", wrap: traced,
		wraps: true, // nothing promises that its body may be closed beside a Read
	},
	{name: "otelhttp above", wrap: traced, above: true,
		hides: true, // it wraps the body to count bytes, and only Read and Close are left
	},
	{name: "oauth2", wrap: authorized},
	{name: "oauth2 above", wrap: authorized, above: true},
	{name: "SigV4", wrap: signed,
		readsAhead: true, // for the hash that it signs
	},
	{name: "httpcache", wrap: cached,
		wraps: true, // like otelhttp
	},
	{name: "httpcache above", wrap: cached, above: true},
	{name: "ReverseProxy", wrap: proxied, above: true,
		hides:    true, // a body that came over a connection can be read only once
		keeps:    proxyKeeps,
		byMethod: true, // a proxy must not repeat a POST, whatever key it has
	},
	{name: "HTTP/2", http2: true, wrap: func(next http.RoundTripper, _ *url.URL) http.RoundTripper { return next },
		forgetsMore: true, // it forgets a body to resend if it then has no connection
	},
	{name: "buffers", wrap: written(buffers)},
	{name: "clones", wrap: written(func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		return next.RoundTrip(req.Clone(req.Context()))
	})},
	{name: "sets a header", wrap: written(setsHeader),
		wraps:   true, // like gzhttp
		encodes: true, // a retry comes with the header that the first attempt was given, so it does not decode
	},
	{name: "sets a header above", wrap: written(setsHeader), above: true},
	{name: "forgets to close", wrap: written(forgetsToClose),
		forgets: true,
	},
	{name: "sends GetBody's", wrap: written(sendsGetBody),
		forgetsFirst: true,
	},
	{name: "reads GetBody's", wrap: written(readsGetBody),
		forgetsMore: true,
		readsAhead:  true,
	},
}

func hedged(next http.RoundTripper, _ *url.URL) http.RoundTripper {
	rt, err := hedgedhttp.NewRoundTripper(100*time.Millisecond, 2, next)
	if err != nil {
		panic(err)
	}
	return rt
}

func digested(next http.RoundTripper, _ *url.URL) http.RoundTripper {
	return &digest.Transport{Username: "zoo", Password: "secret", Transport: next}
}

func traced(next http.RoundTripper, _ *url.URL) http.RoundTripper { return otelhttp.NewTransport(next) }

func authorized(next http.RoundTripper, _ *url.URL) http.RoundTripper {
	return &oauth2.Transport{Source: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "secret"}), Base: next}
}

func cached(next http.RoundTripper, _ *url.URL) http.RoundTripper {
	return &httpcache.Transport{Transport: next, Cache: httpcache.NewMemoryCache()}
}

func signed(next http.RoundTripper, _ *url.URL) http.RoundTripper { return &signing{next} }

// signing signs requests for AWS, and hashes the body for that.
type signing struct{ next http.RoundTripper }

func (s *signing) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	content, err := contentOf(req)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	keys := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}
	err = v4.NewSigner().SignHTTP(req.Context(), keys, req, hash, "execute-api", "eu-central-1", time.Now())
	if err != nil {
		return nil, err
	}
	return s.next.RoundTrip(req)
}

// contentOf reads req's body through GetBody, or else buffers it.
func contentOf(req *http.Request) ([]byte, error) {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return nil, nil
	case req.GetBody != nil:
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		defer body.Close()
		return io.ReadAll(body)
	}
	content, err := io.ReadAll(req.Body)
	req.Body.Close()
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return content, err
}

const proxyKeeps = 1 << 20

// proxied sends requests to a httputil.ReverseProxy whose Transport is next.
func proxied(next http.RoundTripper, target *url.URL) http.RoundTripper {
	p := &proxy{client: newBase(false)}
	p.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: next,
		ErrorLog:  log.New(io.Discard, "", 0),
	})
	return p
}

// proxy is a client of a reverse proxy. The proxy ends with it.
type proxy struct {
	client *base
	server *httptest.Server
}

func (p *proxy) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = p.server.Listener.Addr().String()
	return p.client.RoundTrip(req)
}

func (p *proxy) CloseIdleConnections() {
	p.client.CloseIdleConnections()
	p.server.Close()
}

// policy returns what a Transport beside the animal needs.
func (a animal) policy() retryhttp.Policy {
	p := retryhttp.Policy{Backoff: retryhttp.Constant(0)}
	if a.byMethod {
		p.RecordBytes = proxyKeeps
		p.Idempotent = func(req *http.Request) bool {
			return retryhttp.Idempotent(&http.Request{Method: req.Method})
		}
	}
	return p
}

// function is a RoundTripper that is a function of the next.
type function struct {
	next http.RoundTripper
	do   func(next http.RoundTripper, req *http.Request) (*http.Response, error)
}

func (f *function) RoundTrip(req *http.Request) (*http.Response, error) { return f.do(f.next, req) }

type roundTrip = func(next http.RoundTripper, req *http.Request) (*http.Response, error)

func written(do roundTrip) func(http.RoundTripper, *url.URL) http.RoundTripper {
	return func(next http.RoundTripper, _ *url.URL) http.RoundTripper { return &function{next, do} }
}

func buffers(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return next.RoundTrip(req)
	}
	defer req.Body.Close()
	return forgetsToClose(next, req)
}

func forgetsToClose(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return next.RoundTrip(req)
	}
	content, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body, req.GetBody, req.ContentLength = io.NopCloser(bytes.NewReader(content)), nil, int64(len(content))
	return next.RoundTrip(req)
}

// setsHeader does not copy the request that it changes, as gzhttp did for years.
func setsHeader(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	decodes := req.Header.Get("Accept-Encoding") == ""
	if decodes {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := next.RoundTrip(req)
	if err == nil && decodes && resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Header.Del("Content-Encoding")
		resp.Body = &decodedBody{encoded: resp.Body}
	}
	return resp, err
}

func sendsGetBody(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.GetBody == nil {
		return next.RoundTrip(req)
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body = body
	return next.RoundTrip(req)
}

func readsGetBody(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.GetBody == nil {
		return next.RoundTrip(req)
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return nil, err
	}
	return next.RoundTrip(req)
}

// decodedBody decodes a gzip body from the first Read on.
type decodedBody struct {
	encoded io.ReadCloser
	reader  *gzip.Reader
}

func (b *decodedBody) Read(p []byte) (int, error) {
	if b.reader == nil {
		var err error
		if b.reader, err = gzip.NewReader(b.encoded); err != nil {
			return 0, err
		}
	}
	return b.reader.Read(p)
}

func (b *decodedBody) Close() error { return b.encoded.Close() }
