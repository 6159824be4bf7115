package outage

// list is a doubly linked list, oldest first. What is in it has a node for it, so that nothing is
// allocated. A list must not be copied after first use.
type list[T any] struct{ ring node[T] } // the node between the last and the first is of nothing

// node is a place in a list.
type node[T any] struct {
	of             *T
	previous, next *node[T]
}

// first returns the oldest in the list, or nil.
func (l *list[T]) first() *T {
	if l.ring.next == nil {
		return nil
	}
	return l.ring.next.of
}

// add puts n, which is a node of v, at the end.
func (l *list[T]) add(n *node[T], v *T) {
	r := &l.ring
	if r.next == nil {
		r.previous, r.next = r, r
	}
	*n = node[T]{v, r.previous, r}
	n.previous.next, r.previous = n, n
}

// remove takes n out of its list.
func (n *node[T]) remove() { n.previous.next, n.next.previous = n.next, n.previous }
