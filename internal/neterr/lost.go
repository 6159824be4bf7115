package neterr

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// Lost reports whether err says that a connection or a stream ended: a timeout, a reset, or a
// premature end. Such an error says nothing about the bytes that came before it. Modules that
// replace net/http's HTTP/2 are recognized by the packages of their errors. A join is lost if one of
// its errors is: its own Timeout method may speak for any of them.
func Lost(err error) bool {
	if err == nil {
		return false
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if err == io.ErrUnexpectedEOF || slices.Contains(transports[:], t.PkgPath()) ||
		t.PkgPath() == "net/http" && strings.HasPrefix(t.Name(), "http2") || connectionLost(err.Error()) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), Lost)
	case net.Error:
		return true
	}
	return Lost(errors.Unwrap(err))
}

// GivenUp reports whether err is what net/http's own body returns after its request was canceled, or
// after the body was closed.
func GivenUp(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, http.ErrBodyReadAfterClose) || CanceledBelow(err) ||
		err.Error() == http2BodyClosed
}

var transports = [...]string{
	"net/http/internal/http2",
	"golang.org/x/net/http2",
	"github.com/quic-go/quic-go",
	"github.com/quic-go/quic-go/http3",
	"github.com/quic-go/quic-go/internal/qerr",
}
