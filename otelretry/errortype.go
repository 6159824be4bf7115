package otelretry

import (
	"reflect"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// errorType returns error.type for err: the full name of its type, without a pointer. otelhttp's
// metric of attempts has the same spelling, and nobody can change that. semconv.ErrorType, which
// otelhttp has for its spans, would keep the pointer.
func errorType(err error) attribute.KeyValue {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Name() == "" {
		return semconv.ErrorTypeKey.String(t.String())
	}
	return semconv.ErrorTypeKey.String(t.PkgPath() + "." + t.Name())
}
