package field

// IdempotentMethod reports whether the method is idempotent, according to the IANA Hypertext
// Transfer Protocol (HTTP) Method Registry as of 2026-06-17.
func IdempotentMethod(method string) bool {
	if SafeMethod(method) {
		return true
	}
	switch method {
	case "PUT", "DELETE",
		"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "MERGE",
		"MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH",
		"PROPPATCH", "REBIND", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF",
		"VERSION-CONTROL":
		return true
	}
	return false
}

// SafeMethod reports whether the method requests no change of state on the server (RFC 9110,
// section 9.2.1).
func SafeMethod(method string) bool {
	switch method {
	case "", "GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PRI", "PROPFIND", "REPORT", "SEARCH":
		return true
	}
	return false
}
