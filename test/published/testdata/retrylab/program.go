// Package program is a module of somebody who uses retrylab.
package program

import (
	"time"

	"github.com/retryhttp/retryhttp"
)

// Policy is the policy of the program.
func Policy() retryhttp.Policy { return retryhttp.Policy{AttemptTimeout: time.Second} }
