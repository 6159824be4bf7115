package fault

import (
	"time"

	"github.com/retryhttp/retryhttp"
)

// DownloadPolicy is which part of a Policy a Download relies on.
type DownloadPolicy int

const (
	Plain           DownloadPolicy = iota // none
	Resuming                              // Resume and StallTimeout
	Buffering                             // BufferBytes, and the body is shorter
	Both                                  // Resume and BufferBytes, and the body is longer
	Peeking                               // PeekBytes
	PeekingResuming                       // PeekBytes and Resume
	lastPolicy      = PeekingResuming
)

func (p DownloadPolicy) String() string {
	return [...]string{"plain", "resume", "buffer", "buffer and resume", "peek", "peek and resume"}[p]
}

// An Object's size lies between the first two, for each part of it and each encoding.
const (
	longBuffer  = 64 << 10
	shortBuffer = 1000
	peek        = 100
)

// Set makes policy one of this kind. Unless it is Plain, a Read may take as long as
// stall, and an attempt ten times as long.
func (p DownloadPolicy) Set(policy *retryhttp.Policy, stall time.Duration) {
	policy.Budget = retryhttp.Unlimited{}
	if p == Plain {
		return
	}
	policy.StallTimeout, policy.AttemptTimeout = stall, 10*stall
	policy.Resume = p.resumes()
	switch p {
	case Buffering:
		policy.BufferBytes = longBuffer
	case Both:
		policy.BufferBytes = shortBuffer
	case Peeking, PeekingResuming:
		policy.PeekBytes = peek
	}
}

func (p DownloadPolicy) resumes() bool {
	return p == Resuming || p == Both || p == PeekingResuming
}
