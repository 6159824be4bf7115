package respbody

import (
	"bytes"
	"io"
	"reflect"
	"strings"
)

// isInMemory reports whether body is what io.NopCloser returns for a reader in memory. A Read of
// such a body never waits. net/http's isKnownInMemoryReader works in the same way.
func isInMemory(body io.ReadCloser) bool {
	if reflect.TypeOf(body) != nopCloserWriterTo {
		return false
	}
	switch reflect.ValueOf(body).Field(0).Interface().(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return true
	}
	return false
}

// nopCloserWriterTo is the type that io.NopCloser returns for a reader with a WriteTo method. The
// readers in memory have this method.
var nopCloserWriterTo = reflect.TypeOf(io.NopCloser(new(bytes.Buffer)))
