package keyed_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/retryhttp/retryhttp/internal/keyed"
)

type value struct {
	n    int
	idle bool
}

func idle(v *value, _ time.Time) bool { return v.idle }

func add(m *keyed.Map[value], key string, n int) *value {
	return m.FindOrAdd(key, func() *value { return &value{n: n} }, idle)
}

func fill(t *testing.T, m *keyed.Map[value]) {
	t.Helper()
	for i := range keyed.Most {
		require.NotNil(t, add(m, strconv.Itoa(i), i))
	}
}

func count(m *keyed.Map[value]) (n int) {
	for range m.All() {
		n++
	}
	return n
}

func TestValueIsFoundByItsKey(t *testing.T) {
	var m keyed.Map[value]
	assert.Nil(t, m.Find("a"))
	a := add(&m, "a", 1)
	assert.Same(t, a, m.Find("a"))
	assert.Same(t, a, add(&m, "a", 2))
	assert.NotSame(t, a, add(&m, "b", 2))
	all := make(map[string]int)
	for key, v := range m.All() {
		all[key] = v.n
	}
	assert.Equal(t, map[string]int{"a": 1, "b": 2}, all)
}

func TestFullMapHasNoRoomWhileNothingIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m keyed.Map[value]
		fill(t, &m)
		assert.Nil(t, add(&m, "new", 0))
		assert.Nil(t, m.Find("new"))
		assert.NotNil(t, add(&m, "7", 0), "what is there is found")
		m.Find("7").idle = true
		assert.Nil(t, add(&m, "new", 0), "idle values are looked for once a second")
		time.Sleep(time.Second)
		assert.NotNil(t, add(&m, "new", 0))
		assert.Nil(t, m.Find("7"))
		assert.Equal(t, keyed.Most, count(&m))
	})
}

func TestFullMapForgetsAllThatIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m keyed.Map[value]
		fill(t, &m)
		for _, v := range m.All() {
			v.idle = v.n%2 == 0
		}
		assert.NotNil(t, add(&m, "new", 1))
		assert.Equal(t, keyed.Most/2+1, count(&m))
	})
}

func TestOneValueIsMadeForAKey(t *testing.T) {
	var m keyed.Map[value]
	var wg sync.WaitGroup
	found := make([]*value, 8)
	for i := range found {
		wg.Go(func() { found[i] = add(&m, "a", i) })
	}
	wg.Wait()
	for _, v := range found {
		assert.Same(t, found[0], v)
	}
}

// The host of a request is a part of its URL, and the URL may be long.
func TestMapDoesNotKeepTheTextOfAKeyAlive(t *testing.T) {
	var m keyed.Map[value]
	key := strings.Repeat("x", 100)[:10]
	add(&m, key, 1)
	for kept := range m.All() {
		assert.Equal(t, key, kept)
		assert.NotSame(t, unsafe.StringData(key), unsafe.StringData(kept))
	}
}

// A value that is deleted makes room for one other.
func TestDeletedValueMakesRoom(t *testing.T) {
	var m keyed.Map[value]
	fill(t, &m)
	for range 2 {
		m.Delete("7")
	}
	assert.False(t, m.Full())
	assert.NotNil(t, add(&m, "new", 0))
	assert.True(t, m.Full())
	assert.Nil(t, m.Find("7"))
}
