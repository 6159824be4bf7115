package retrylab

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/retryhttp/retryhttp"
)

// describe says in a line what a policy has beside the defaults.
func describe(p retryhttp.Policy) string {
	if fields := fieldsOf(reflect.ValueOf(p)); fields != "" {
		return fields
	}
	return "the defaults"
}

// fieldsOf lists the exported fields that are not zero.
func fieldsOf(v reflect.Value) string {
	var fields []string
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() && !v.Field(i).IsZero() {
			fields = append(fields, strings.TrimSpace(field.Name+" "+valueOf(v.Field(i))))
		}
	}
	return strings.Join(fields, ", ")
}

// valueOf describes a field. Nobody can see what a function does.
func valueOf(v reflect.Value) string {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Func:
		return "of its own"
	case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[retryhttp.Policy]().PkgPath():
		return v.Type().Name() + "{" + fieldsOf(v) + "}"
	case v.Kind() == reflect.Struct:
		return v.Type().String()
	case v.Kind() == reflect.Bool:
		return ""
	}
	return fmt.Sprint(v)
}
