package fault

import (
	"math/rand/v2"
	"sync"
)

const contentRoom = 8 << 20

var contentBlock = sync.OnceValue(func() []byte {
	block := make([]byte, contentRoom)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(block)
	return block
})

// Content returns size bytes for the n-th request. The previous and the next request have other
// bytes, so that bodies that were mixed show. The bytes are a part of a block that all requests
// share, and must not be changed.
func Content(n uint64, size int) []byte {
	const stride = 4093 // a prime
	offset := int(n * stride % uint64(contentRoom-size))
	return contentBlock()[offset : offset+size]
}
