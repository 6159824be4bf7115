package program

import (
	"testing"
	"time"

	"github.com/retryhttp/retryhttp/retrylab"
)

func TestPolicyInAnOutage(t *testing.T) {
	result := retrylab.Outage{For: time.Second}.Run(t, Policy)
	if lost := result.Policy().Lost.Mean; lost > 0.2 {
		t.Errorf("an outage of a second loses %.0f %%\n%v", 100*lost, result)
	}
}
