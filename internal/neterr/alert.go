package neterr

import (
	"crypto/tls"
	"errors"
	"net"
	"reflect"
)

// refusedByAlert reports whether the server or a proxy sent a TLS alert that refuses this side. Some
// alerts refuse nothing, because they say that the bytes of the connection made no sense.
func refusedByAlert(err error) bool {
	if alert, ok := errors.AsType[tls.AlertError](err); ok { // over QUIC
		return !aboutConnection(alert)
	}
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](op.Err) {
		if op.Op == "remote error" { // over TCP
			// crypto/tls does not export the type, which is a uint8.
			alert := reflect.ValueOf(op.Err)
			return alert.Kind() != reflect.Uint8 || !aboutConnection(tls.AlertError(alert.Uint()))
		}
	}
	return false
}

// aboutConnection reports whether the alert says that the connection broke (RFC 8446, section 6, and
// RFC 5246, section 7.2). An example is a bit that flipped on the way. Another connection is
// likely to work.
func aboutConnection(alert tls.AlertError) bool {
	switch alert {
	case 10, // unexpected_message
		20, // bad_record_mac
		21, // decryption_failed
		22, // record_overflow
		50, // decode_error
		80, // internal_error
		90: // user_canceled
		return true
	}
	return false
}
