package fault

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/retryhttp/retryhttp"
)

// Watch returns a base that records in l how many attempts of a request are under way at once. An
// attempt is under way until its response header or its error comes.
func (l *Ledger) Watch(base http.RoundTripper) http.RoundTripper {
	return &watched{l, base}
}

type watched struct {
	ledger *Ledger
	base   http.RoundTripper
}

func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	id := strings.TrimPrefix(req.URL.Path, "/")
	w.ledger.underWay(id, 1)
	defer w.ledger.underWay(id, -1)
	resp, err := w.base.RoundTrip(req)
	if retryhttp.AttemptOf(req.Context()).Detour {
		w.ledger.detours.Add(1)
	}
	return resp, err
}

func (w *watched) CloseIdleConnections() {
	w.base.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

func (l *Ledger) underWay(id string, change int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if acc := l.requests[id]; acc != nil {
		acc.underWay += change
		acc.atOnce = max(acc.atOnce, acc.underWay)
	}
}

// checkUnderWay returns an error if too many attempts were under way at once: two of a write, or
// three of any other request.
func (acc *account) checkUnderWay() error {
	most := 1
	if safe(acc.want.Method) {
		most = 2
	}
	if acc.atOnce > most {
		return fmt.Errorf("%d attempts of a %s were under way at once", acc.atOnce, acc.want.Method)
	}
	return nil
}
