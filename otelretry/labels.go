package otelretry

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/retryhttp/retryhttp"
)

// labels are the attributes of requests that differ in nothing which metrics show. They are made
// once for many requests, because making a set of attributes costs more than a measurement.
type labels struct {
	*gauges
	measure []metric.RecordOption // server.address, server.port and http.request.method
	count   []metric.AddOption    // the same
	call    []attribute.KeyValue  // the same

	mu   sync.Mutex
	ends map[end][]metric.AddOption
}

// gauges are what requests to one server share, whatever their methods.
type gauges struct {
	gauge           []metric.RecordOption // server.address, server.port and retryhttp.key
	inLine, sparing last
}

// last is what a gauge that is seldom above 0 last showed.
type last struct {
	mu   sync.Mutex  // held from a reading until it is recorded
	zero atomic.Bool // the gauge shows 0, and nobody is about to record another number
}

// end is how a request ended that got a response, and that nobody canceled.
type end struct {
	stop      retryhttp.Stop
	status    int
	ambiguous bool // and sent more than once: the response is not lost
}

// labelSets holds the labels of requests seen so far.
type labelSets struct {
	server func(*http.Request) string // nil if the server is named after the URL

	mu   sync.RWMutex
	sets map[labelKey]*labels
	keys map[string]struct{}

	gauges map[attribute.Distinct]*gauges
}

func newLabelSets(server func(*http.Request) string) *labelSets {
	return &labelSets{
		server: server,
		sets:   make(map[labelKey]*labels),
		keys:   make(map[string]struct{}),
		gauges: make(map[attribute.Distinct]*gauges),
	}
}

type labelKey struct {
	scheme, host, method, key string
	keyed                     bool
}

// Requests beyond these numbers get labels of their own, and their keys one name.
const (
	maxLabels = 1000
	maxKeys   = 100
	otherKey  = "_OTHER"
)

// of returns the labels of req. keyed reports whether requests have a key.
func (s *labelSets) of(req *http.Request, key string, keyed bool) *labels {
	k := labelKey{method: req.Method, key: key, keyed: keyed}
	switch {
	case s.server != nil:
		k.host = s.server(req)
	case req.URL != nil:
		k.scheme, k.host = req.URL.Scheme, req.URL.Host
	}
	s.mu.RLock()
	l := s.sets[k]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.sets[k]; l != nil {
		return l
	}
	l = s.newLabels(req, k)
	if len(s.sets) < maxLabels {
		// The key of the map must not keep the caller's strings, which may be parts of long ones.
		k = labelKey{strings.Clone(k.scheme), strings.Clone(k.host), strings.Clone(k.method), strings.Clone(k.key), keyed}
		s.sets[k] = l
	}
	return l
}

func (s *labelSets) newLabels(req *http.Request, k labelKey) *labels {
	var server []attribute.KeyValue
	if s.server == nil {
		server = serverOf(req)
	} else if k.host != "" {
		server = []attribute.KeyValue{semconv.ServerAddress(valid(strings.Clone(k.host)))}
	}
	l := &labels{call: append(slices.Clone(server), methodOf(req)), ends: make(map[end][]metric.AddOption)}
	if k.keyed {
		server = append(server, keyKey.String(valid(s.bounded(k.key))))
	}
	l.gauges = s.gaugesOf(attribute.NewSet(server...))
	set := metric.WithAttributeSet(attribute.NewSet(slices.Clone(l.call)...))
	l.measure, l.count = []metric.RecordOption{set}, []metric.AddOption{set}
	return l
}

// gaugesOf returns the gauges with a set of attributes. The caller holds mu.
func (s *labelSets) gaugesOf(set attribute.Set) *gauges {
	g := s.gauges[set.Equivalent()]
	if g == nil {
		g = &gauges{gauge: []metric.RecordOption{metric.WithAttributeSet(set)}}
		if len(s.gauges) < maxLabels {
			s.gauges[set.Equivalent()] = g
		}
	}
	return g
}

// bounded returns key, or otherKey if there are too many keys. The caller holds mu.
func (s *labelSets) bounded(key string) string {
	if _, known := s.keys[key]; known {
		return key
	}
	if len(s.keys) >= maxKeys {
		return otherKey
	}
	key = strings.Clone(key)
	s.keys[key] = struct{}{}
	return key
}

// with returns l's attributes of calls, and more.
func (l *labels) with(more ...attribute.KeyValue) []metric.AddOption {
	attrs := append(slices.Clone(l.call), more...)
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}
}

// ended returns the attributes of how a request ended: a is its last attempt.
func (l *labels) ended(a retryhttp.Attempt, o retryhttp.Outcome) []metric.AddOption {
	if a.Err != nil || a.Response == nil || o.Stop == retryhttp.StopCanceled {
		return l.with(endOf(a, o)...)
	}
	e := end{o.Stop, knownStatus(a.Response.StatusCode), o.Ambiguous}
	l.mu.Lock()
	defer l.mu.Unlock()
	opts, known := l.ends[e]
	if !known {
		opts = l.with(endOf(a, o)...)
		if len(l.ends) < maxLabels {
			l.ends[e] = opts
		}
	}
	return opts
}

// endOf returns the attributes of how a request ended: a is its last attempt.
func endOf(a retryhttp.Attempt, o retryhttp.Outcome) []attribute.KeyValue {
	attrs := []attribute.KeyValue{stopKey.String(string(o.Stop))}
	switch {
	case o.Stop == retryhttp.StopCanceled:
		attrs = append(attrs, errorType(cancellation(a.Request.Context())))
	case a.Err != nil:
		attrs = append(attrs, errorType(a.Err))
	case a.Response != nil:
		status := knownStatus(a.Response.StatusCode)
		attrs = append(attrs, semconv.HTTPResponseStatusCode(status))
		if status >= http.StatusBadRequest {
			attrs = append(attrs, semconv.ErrorTypeKey.String(strconv.Itoa(status)))
		}
	}
	if o.Ambiguous {
		attrs = append(attrs, ambiguousKey.Bool(true))
		if o.Attempts > 1 {
			attrs = append(attrs, repeatedKey.Bool(true))
		}
	}
	return attrs
}

// knownStatus returns status if it is registered, and otherwise what RFC 9110, section 15, has a client
// take it for: the x00 of its class, or a 500 if it has no class. If other statuses were reported, a
// server that chooses statuses could make time series without end. "4xx" would look like the type of an
// error to queries that tell types by their letters.
func knownStatus(status int) int {
	switch {
	case http.StatusText(status) != "": // it knows the statuses of the registry, and no others
		return status
	case status < 100 || status > 599:
		return http.StatusInternalServerError
	}
	return status / 100 * 100
}

// serverOf returns the attributes server.address and server.port.
func serverOf(req *http.Request) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 3)
	if req.URL == nil {
		return attrs
	}
	// A caller may have put userinfo into the host.
	u := url.URL{Host: strings.Clone(req.URL.Host[strings.LastIndexByte(req.URL.Host, '@')+1:])}
	attrs = append(attrs, semconv.ServerAddress(valid(u.Hostname())))
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
		return append(attrs, semconv.ServerPort(port))
	case req.URL.Scheme == "https":
		return append(attrs, semconv.ServerPort(443))
	case req.URL.Scheme == "http":
		return append(attrs, semconv.ServerPort(80))
	}
	return attrs
}

// valid returns s in valid UTF-8. Exporters export nothing at all while one label is not.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// knownMethods are the methods of the semantic conventions. If other methods were reported, a
// caller that chooses methods could make time series without end.
var knownMethods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", "QUERY"}

func methodOf(req *http.Request) attribute.KeyValue {
	if req.Method == "" {
		return semconv.HTTPRequestMethodGet
	}
	if i := slices.Index(knownMethods, req.Method); i >= 0 {
		return semconv.HTTPRequestMethodKey.String(knownMethods[i])
	}
	return semconv.HTTPRequestMethodOther
}
