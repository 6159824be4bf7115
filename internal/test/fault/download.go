package fault

import "fmt"

// Download is a GET of an [Object], and what its server does wrong.
type Download struct {
	Framing   Framing
	Validator Validator
	Partial   bool // the caller asks for a range
	Policy    DownloadPolicy

	// The first Cuts answers meet the fault How, at Where in their bodies.
	Cuts  int
	Where Where
	How   How

	Replaced bool     // another version takes the Object's place after the first answer
	Resumed  *Resumed // what a resumption meets
}

func (d Download) String() string {
	name := fmt.Sprintf("%v/%v/%v %v %d times/%v/%s",
		d.Policy, d.Framing, d.Where, d.How, d.Cuts, d.Validator, d.Resumed.Name)
	if d.Partial {
		name += "/partial"
	}
	if d.Replaced {
		name += "/replaced"
	}
	return name
}

// Framing is how the length of a body is given.
type Framing int

const (
	Length     Framing = iota
	Chunked            // over HTTP/2 and HTTP/3, no length
	Delimited          // by the end of an HTTP/1 connection
	Gzip               // which net/http asks for, and undoes
	GzipWanted         // which the caller asks for, with a Content-Length
)

func (f Framing) String() string {
	return [...]string{"Content-Length", "chunked", "close-delimited", "gzip", "gzip for the caller"}[f]
}

func (f Framing) hasLength() bool { return f == Length || f == GzipWanted }

// Where is a position in an answer.
type Where int

const (
	BeforeHeader Where = iota
	AfterHeader
	AfterFirstByte
	InTheMiddle
	BeforeLastByte
	AfterLastByte // before the body's end is seen, if it has no length
)

func (w Where) String() string {
	return [...]string{
		"before the header", "after the header", "after the first byte",
		"in the middle", "before the last byte", "after the last byte",
	}[w]
}

// in returns the position in a body of n bytes.
func (w Where) in(n int) int {
	switch w {
	case AfterFirstByte:
		return min(1, n)
	case InTheMiddle:
		return n / 2
	case BeforeLastByte:
		return max(n-1, 0)
	case AfterLastByte:
		return n
	}
	return 0
}

// These Hows happen to a body, besides all that may happen to a connection. Over HTTP/2 and
// HTTP/3, Reset and Close are about one stream.
const (
	Trickle How = Stall + 1 + iota // all of it comes, with pauses
	Drop                           // the connection is reset, with all its streams
)

func (h How) String() string {
	return [...]string{"never", "reset", "closed", "stalled", "trickling", "dropped"}[h]
}

// Validator is how an answer says which version it has.
type Validator int

const (
	StrongTag Validator = iota
	WeakTag
	EmptyTag
	OldDate    // more than a minute before the answer
	RecentDate // a second before the answer
	NoValidator
	NoRanges // a strong tag, and Accept-Ranges: none
	DatedTag // a strong tag, and an old date
	YoungTag // a strong tag, and a recent date
)

func (v Validator) String() string {
	return [...]string{
		"strong tag", "weak tag", "empty tag", "old date", "recent date", "no validator", "no ranges",
		"dated tag", "young tag",
	}[v]
}
