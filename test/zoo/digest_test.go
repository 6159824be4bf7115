package zoo

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/retryhttp/retryhttp"
	"github.com/retryhttp/retryhttp/internal/test/fault"
)

// digest sends copies from GetBody if there is one, and closes only the copies.
func TestDigestUploadOfAFileClosesIt(t *testing.T) {
	file := &kind{size: medium, form: inPlace, open: (*upload).open}
	r := putThrough(t, &animal{wrap: digested, challenged: true}, file)
	closed := func() bool { return r.upload.closed(false) }
	assert.True(t, fault.Eventually(atRest, closed), "the file is open")
}

// digest sends the body twice, which takes a GetBody that works or no GetBody.
func TestDigestUploadOfAStreamLongerThanIsKept(t *testing.T) {
	putThrough(t, &animal{wrap: digested, challenged: true}, &kind{size: medium, form: once, open: (*upload).stream})
}

// putThrough uploads through the animal below a Transport, with success at the
// first attempt.
func putThrough(t *testing.T, a *animal, k *kind) *result {
	t.Helper()
	srv := newServer(t)
	s := scene{animal: a, kind: k, method: method{http.MethodPut, "", true}, fault: &mishap{answer: (*exchange).serve}}
	r := s.send(t, srv, 1, true)
	assert.True(t, r.success(false), "%v", r)
	assert.Equal(t, 1, r.outcome.Attempts)
	assert.Equal(t, retryhttp.StopFinal, r.outcome.Stop)
	assert.NoError(t, r.account.check(true))
	return r
}
