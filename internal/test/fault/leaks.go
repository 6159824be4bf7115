package fault

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

// Eventually waits, for no longer than within, for events at sockets and in goroutines.
func Eventually(within time.Duration, is func() bool) bool {
	for end := time.Now().Add(within); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Inventory is what the process holds at some moment.
type Inventory struct {
	goroutines int
	files      int // open descriptors; -1 where they cannot be counted
}

func TakeInventory() Inventory {
	// The runtime opens the descriptors of its poller for the first timer or socket, and keeps them.
	time.Sleep(time.Nanosecond)
	return Inventory{runtime.NumGoroutine(), openFiles()}
}

// Leaked returns what is left beyond the inventory. Everything that was begun since the inventory
// has the time within to end.
//
// Leaked waits for the files, too. Goroutines of the inventory may have ended, and a new goroutine
// may be left in their place: a handler that has hijacked its connection, say.
func (i Inventory) Leaked(within time.Duration) error {
	end := time.Now().Add(within)
	if !Eventually(within, func() bool { return runtime.NumGoroutine() <= i.goroutines }) {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		return fmt.Errorf("%d goroutines are left of %d:\n%s", runtime.NumGoroutine(), i.goroutines, &stacks)
	}
	if !Eventually(time.Until(end), func() bool { return openFiles() <= i.files }) {
		return fmt.Errorf("%d open files, and %d before: %q", openFiles(), i.files, namesOfOpenFiles())
	}
	return nil
}

func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}

// namesOfOpenFiles shows which of them are sockets, pipes and files.
func namesOfOpenFiles() (names []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		name, _ := os.Readlink("/proc/self/fd/" + e.Name())
		names = append(names, name)
	}
	return names
}
