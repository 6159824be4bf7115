package redisbudget

import (
	"strings"
	"time"
)

// maxAccounts bounds the keys of a process.
const maxAccounts = 4096

func (b *Bucket) init() {
	b.settings = b.resolve()
	b.start = time.Now()
	b.crowd = newAccount(b, "", b.start)
	b.crowd.silence()
}

func (b *Bucket) find(key string) (*account, bool) {
	a, ok := b.accounts.Load(key)
	if !ok {
		return nil, false
	}
	return a.(*account), true
}

// account returns the account of a key. Keys for which there is no room share one account.
func (b *Bucket) account(key string) *account {
	if a, ok := b.find(key); ok {
		return a
	}
	b.once.Do(b.init)
	if time.Since(b.start) < time.Duration(b.full.Load()) {
		return b.crowd // without taking the lock
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.find(key); ok {
		return a
	}
	now := time.Now()
	if b.count >= maxAccounts && !b.makeRoom(now) {
		b.full.Store(int64(b.swept.Add(b.settings.interval).Sub(b.start)))
		return b.crowd
	}
	a := newAccount(b, key, now)
	if b.Client == nil || b.closed {
		a.silence()
	}
	b.accounts.Store(strings.Clone(key), a) // a host is part of a URL, which may be long
	b.count++
	return a
}

// makeRoom drops the accounts that can be dropped, and reports whether there is room now. It
// looks at most once per Interval. The caller holds b.mu.
func (b *Bucket) makeRoom(now time.Time) bool {
	if now.Sub(b.swept) < b.settings.interval {
		return false
	}
	b.swept = now
	b.accounts.Range(func(key, v any) bool {
		if v.(*account).drop(now) {
			b.accounts.Delete(key)
			b.count--
		}
		return true
	})
	return b.count < maxAccounts
}

// stranger returns the account that b.account would return for a new key, but adds nothing.
func (b *Bucket) stranger() *account {
	b.once.Do(b.init)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count >= maxAccounts {
		return b.crowd
	}
	return newAccount(b, "", time.Now())
}
