package outage

// mostPasses is how many refused asks pass a turn on to another bucket, until the next success or
// probe. With a bound, the cost of a success does not grow with the number of buckets.
const mostPasses = 3

// tenants are the buckets that the retries in a line draw on. A bucket that is spent would keep the
// others' retries waiting, so a refused ask passes its turn on. The buckets take turns: one that is
// well again is found behind many that are spent.
type tenants struct {
	of     map[any]*tenant // by bucket
	order  list[tenant]    // the one that has asked last is the last
	turn   int             // the number of the newest success or probe
	passes int             // how many more refused asks pass it on
}

// tenant is the retries of one bucket.
type tenant struct {
	bucket  any
	waiters list[waiter]
	place   node[tenant]
	asked   int // the turn in which it asked last
}

func (t *tenants) add(w *waiter, bucket any) {
	own := t.of[bucket]
	if own == nil {
		own = &tenant{bucket: bucket}
		if t.of == nil {
			t.of = map[any]*tenant{}
		}
		t.of[bucket] = own
		t.order.add(&own.place, own)
	}
	w.tenant = own
	own.waiters.add(&w.ofTenant, w)
}

func (t *tenants) remove(w *waiter) {
	w.ofTenant.remove()
	if own := w.tenant; own.waiters.first() == nil {
		own.place.remove()
		delete(t.of, own.bucket)
	}
}

// begin begins a turn, in which w asks.
func (t *tenants) begin(w *waiter) {
	t.turn++
	t.passes = mostPasses
	t.ask(w.tenant)
}

// pass returns the retry that may ask after a refusal, or nil. No bucket is asked twice in a turn.
func (t *tenants) pass() *waiter {
	next := t.order.first()
	if t.passes == 0 || next == nil || next.asked == t.turn {
		return nil
	}
	t.passes--
	t.ask(next)
	return next.waiters.first()
}

// ask records that own asks.
func (t *tenants) ask(own *tenant) {
	own.asked = t.turn
	own.place.remove()
	t.order.add(&own.place, own)
}
