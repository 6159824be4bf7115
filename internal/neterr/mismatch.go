package neterr

import (
	"crypto/tls"
	"net/http"
)

// Named returns err as an http.Client names it. If a server has answered a TLS handshake in HTTP,
// the error is http.ErrSchemeMismatch. A client sees only a bare tls.RecordHeaderError as such,
// and so finds none in the error of a RoundTripper that wraps it.
func Named(err error) error {
	if record, ok := err.(tls.RecordHeaderError); ok && string(record.RecordHeader[:]) == "HTTP/" {
		return schemeMismatch{record}
	}
	return err
}

// schemeMismatch is http.ErrSchemeMismatch, and still the error of crypto/tls.
type schemeMismatch struct{ record tls.RecordHeaderError }

func (schemeMismatch) Error() string { return http.ErrSchemeMismatch.Error() }

func (e schemeMismatch) Unwrap() []error { return []error{http.ErrSchemeMismatch, e.record} }
