// Package zoo tests the Transport together with RoundTrippers and request bodies
// that other people wrote. They do what net/http does not: copy the request, change
// its header, call GetBody twice, or close nothing. Some bodies share one reader
// among all attempts.
//
// There is nothing to import here. TestZoo crosses each RoundTripper with each kind
// of body, method and fault. It sends each request without the Transport and with it,
// and the Transport must never make the result worse. Other runs do so with response
// bodies buffered and resumed, and with hedges.
package zoo
