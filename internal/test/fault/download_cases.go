package fault

import "slices"

// Downloads are the matrix of downloads over a version of HTTP. A soak also meets Downloads that
// are not in the matrix.
func Downloads(major int) []Download {
	all := append(cuts(), answers()...)
	all = append(all, validators()...)
	all = append(all, repeated()...)
	seen := make(map[Download]bool)
	return slices.DeleteFunc(all, func(d Download) bool {
		again := seen[d]
		seen[d] = true
		return again || !d.happens(major)
	})
}

// happens reports whether there is such a Download, and whether it differs from others.
func (d Download) happens(major int) bool {
	switch {
	case d.Framing == Gzip && d.Partial: // net/http does not ask for it
		return false
	case d.Framing == Delimited && major > 1:
		return false
	case d.How == Drop && major == 1: // a reset is the same
		return false
	case d.How == Close && d.Where == BeforeHeader:
		return major == 1
	}
	return true
}

// cuts are all ways in which a body is cut, by a server that is well otherwise.
func cuts() (all []Download) {
	for framing := Length; framing <= GzipWanted; framing++ {
		for where := BeforeHeader; where <= AfterLastByte; where++ {
			for how := Reset; how <= Drop; how++ {
				for policy := Plain; policy <= lastPolicy; policy++ {
					for _, partial := range []bool{false, true} {
						all = append(all, Download{
							Framing: framing, Where: where, How: how, Policy: policy, Partial: partial, Cuts: 1, Resumed: Honest,
						})
					}
				}
			}
		}
	}
	return all
}

func answers() (all []Download) {
	for _, resumed := range Resumptions {
		for where := AfterHeader; where <= BeforeLastByte; where++ {
			for how := Reset; how <= Stall; how++ {
				for _, replaced := range []bool{false, true} {
					d := Download{Where: where, How: how, Cuts: 1, Replaced: replaced, Resumed: resumed}
					all = append(all, d.variants()...)
				}
			}
		}
	}
	return all
}

// variants are the downloads that a resumption can be a part of. A policy that does not resume is
// there with one answer, which nobody should ask for.
func (d Download) variants() (all []Download) {
	for policy := Plain; policy <= lastPolicy; policy++ {
		if !policy.resumes() && d.Resumed != Resumptions[len(Resumptions)-1] {
			continue
		}
		d.Policy = policy
		d.Framing, d.Partial = Length, false
		all = append(all, d)
		if d.How != Close {
			continue // how the body broke off makes no difference to what comes after it
		}
		d.Partial = true
		all = append(all, d)
		d.Framing = Chunked
		all = append(all, d)
		d.Framing, d.Partial = GzipWanted, false
		all = append(all, d)
	}
	return all
}

// validators are all validators, with servers that heed them or do not.
func validators() (all []Download) {
	for v := WeakTag; v <= YoungTag; v++ {
		for _, resumed := range Resumptions {
			for _, policy := range []DownloadPolicy{Resuming, Both} {
				for _, replaced := range []bool{false, true} {
					if resumed.spoil == nil {
						all = append(all, Download{
							Validator: v, Where: InTheMiddle, How: Close, Policy: policy, Cuts: 1, Replaced: replaced, Resumed: resumed,
						})
					}
				}
			}
		}
	}
	return all
}

// repeated are Downloads that break off again and again.
func repeated() (all []Download) {
	for where := BeforeHeader; where <= BeforeLastByte; where++ {
		for how := Reset; how <= Stall; how++ {
			for _, policy := range []DownloadPolicy{Resuming, Buffering, Both, Peeking, PeekingResuming} {
				for cuts := 2; cuts <= 5; cuts++ {
					for _, framing := range []Framing{Length, GzipWanted} {
						all = append(all, Download{
							Framing: framing, Where: where, How: how, Policy: policy, Cuts: cuts, Resumed: Honest,
						})
					}
				}
			}
		}
	}
	return all
}
