// Package retrytest fails as told, so that a test can see what a program does about it. It is for any HTTP
// client, and needs no network.
//
// A [Transport] is an http.RoundTripper for the program's client:
//
//	rt := retrytest.NewTransport(t, nil,
//		retrytest.Refused().Nth(1),
//		retrytest.Status(503, "Retry-After", "2").Nth(2, 3),
//	)
//	client := &http.Client{Transport: retryhttp.New(rt, retryhttp.Policy{})}
//
// A [Handler] does the same in an http.Server, such as httptest's, with real sockets. [Serve] is a server without
// sockets, or several replicas behind a balancer.
//
// A [Step] is what becomes of one request. A [Rule] says which requests meet it: the nth, a share, the
// requests of a while, or all. The first Rule that applies counts. A request that no Rule applies to gets the
// real answer: of the Transport's base, or of the handler behind the Handler.
//
// Both record what arrives, request bodies included. When a test fails, its log has the records in a table.
//
// In a testing/synctest bubble, a Transport waits in virtual time. Make it within the bubble.
//
// Until the root module is v1, this package may change with any minor version. The CHANGELOG says what
// has changed.
package retrytest
