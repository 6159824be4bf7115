package fault

// Links are the faults of a network, or of a server that dies.
//
// The header of a request is shorter than 2,000 bytes, and its body, if it has
// one, longer than twice that. An answer's header is shorter than 1,000 bytes,
// and its body longer than twice that.
var Links = []*Fault{
	link("refused", Fails, Link{Refused: true}),
	link("reset at once", Fails, Link{Up: Cut{-1, Reset}}),
	link("closed at once", Fails, Link{Up: Cut{-1, Close}}),
	link("reset when the request comes", Fails, Link{Up: Cut{0, Reset}}),
	link("reset in the request header", Fails, Link{Up: Cut{10, Reset}}),
	link("closed in the request header", Fails, Link{Up: Cut{10, Close}}),
	link("stalled in the request header", Hangs, Link{Up: Cut{10, Stall}}),
	body("reset in the request body", Fails, Link{Up: Cut{4000, Reset}}),
	body("closed in the request body", Fails, Link{Up: Cut{4000, Close}}),
	body("stalled in the request body", Hangs, Link{Up: Cut{4000, Stall}}),
	link("reset before the answer", Fails, Link{Down: Cut{0, Reset}}),
	link("closed before the answer", Fails, Link{Down: Cut{0, Close}}),
	link("stalled before the answer", Hangs, Link{Down: Cut{0, Stall}}),
	link("reset in the header of the answer", Fails, Link{Down: Cut{20, Reset}}),
	link("closed in the header of the answer", Fails, Link{Down: Cut{20, Close}}),
	link("stalled in the header of the answer", Hangs, Link{Down: Cut{20, Stall}}),
	link("reset in the body of the answer", Spoils, Link{Down: Cut{2000, Reset}}),
	link("closed in the body of the answer", Spoils, Link{Down: Cut{2000, Close}}),
	link("stalled in the body of the answer", SpoilHangs, Link{Down: Cut{2000, Stall}}),
	link("that trickles", Harmless, Link{Trickle: true}),
	reused("reset under a request on a connection that was in use", Link{Reused: true, Up: Cut{0, Reset}}),
	reused("closed under a request on a connection that was in use", Link{Reused: true, Up: Cut{0, Close}}),
	reused("reset in a request on a connection that was in use", Link{Reused: true, Up: Cut{10, Reset}}),
}

func link(name string, e Effect, l Link) *Fault {
	return &Fault{Name: "connection " + name, Effect: e, Link: &l}
}

func body(name string, e Effect, l Link) *Fault {
	f := link(name, e, l)
	f.NeedsBody = true
	return f
}

// reused is a fault of a connection that has served a request before.
func reused(name string, l Link) *Fault {
	f := link(name, Fails, l)
	f.Reused = true
	return f
}
