package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A fifth of the attempts fails. Without a budget, four attempts lose 0.8 % of the requests that fail at first.
func TestOneRequestAnHourIsRetried(t *testing.T) {
	for _, c := range []struct {
		days, seeds int
		tenth       float64 // the least that is lost with a tenth for each success
	}{
		{2, 200, 0.2},
		{40, 16, 0.5},
	} {
		t.Run(fmt.Sprint(c.days, " days"), func(t *testing.T) {
			s := Seldom{Policy: defaults, Every: time.Hour, Requests: 24 * c.days, Part: 0.2, Seeds: c.seeds}
			r := s.Run(t)
			t.Logf("hit %v, lost %.3f, load %v", r.Hit, r.Lost, r.Load)
			assert.LessOrEqual(t, r.Lost, 0.03)
			s.Policy = ungated(tenth)
			assert.GreaterOrEqual(t, s.Run(t).Lost, c.tenth)
		})
	}
}
