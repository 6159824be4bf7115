package outage

import "container/list"

// mostAsks is how many buckets are asked for each success or probe. With a bound, the cost of a success
// does not grow with the number of buckets.
const mostAsks = 4

// tenants are the buckets that the retries in a line draw on. A bucket that is spent would keep the
// others' retries waiting, so the buckets take turns. One that is well again is found behind many that
// are spent.
type tenants struct {
	byBucket map[any]*tenant
	order    list.List // of tenants; the one that has had its turn last is the last
	length   int       // number of retries
	round    int       // the number of the newest success or probe
	toAsk    int       // how many more buckets are asked for it
}

// tenant is the retries of one bucket.
type tenant struct {
	bucket  any
	waiters list.List
	place   *list.Element // in the order
	asked   int           // the round in which it asked last
}

// first returns the oldest in l, or nil.
func first[T any](l *list.List) *T {
	if e := l.Front(); e != nil {
		return e.Value.(*T)
	}
	return nil
}

// first returns the retry whose turn is next, or nil.
func (t *tenants) first() *waiter {
	if own := first[tenant](&t.order); own != nil {
		return first[waiter](&own.waiters)
	}
	return nil
}

func (t *tenants) add(w *waiter, bucket any) {
	own := t.byBucket[bucket]
	if own == nil {
		own = &tenant{bucket: bucket}
		if t.byBucket == nil {
			t.byBucket = map[any]*tenant{}
		}
		t.byBucket[bucket] = own
		own.place = t.order.PushBack(own)
	}
	w.tenant, w.place = own, own.waiters.PushBack(w)
	t.length++
}

func (t *tenants) remove(w *waiter) {
	own := w.tenant
	own.waiters.Remove(w.place)
	if own.waiters.Len() == 0 {
		t.order.Remove(own.place)
		delete(t.byBucket, own.bucket)
	}
	t.length--
}

// begin begins the round of a success or a probe.
func (t *tenants) begin() { t.round, t.toAsk = t.round+1, mostAsks }

// letAsk lets the next retry of the round ask for a token. If it is refused, another asks in its place. No
// bucket is asked twice in a round.
func (t *tenants) letAsk(how exit) {
	own := first[tenant](&t.order)
	if own == nil || own.asked == t.round || t.toAsk == 0 {
		return
	}
	own.asked = t.round
	t.toAsk--
	t.order.MoveToBack(own.place)
	w := first[waiter](&own.waiters)
	w.asks = how
	w.signal()
}
