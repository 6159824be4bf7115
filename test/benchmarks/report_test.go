package benchmarks

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	directory = flag.String("report", "",
		"directory to write the report into, from a run of full size; none: a small one, thrown away")
	rounds = flag.Int("rounds", 3, "how often each measurement is made")
)

// TestReport measures everything and writes the report. Without a directory it measures at the
// smallest size, to see that it works. It asserts only results that this library promises and a
// busy machine cannot spoil.
func TestReport(t *testing.T) {
	r := &report{rounds: *rounds, sizes: smallSize}
	dir := *directory
	if dir != "" {
		r.sizes = fullSize
	} else {
		dir = t.TempDir()
	}
	measured := 0
	sections := []struct {
		name    string
		measure func(*testing.T)
	}{
		{"first attempts", r.measureFirstAttempts},
		{"failed twice", r.measureFailedTwice},
		{"requests", r.measureRequests},
		{"large uploads", r.measureHeld},
		{"uploads and an early 503", r.measureEarly},
		{"downloads", r.measureDownloads},
		{"connections", r.measureOpened},
		{"sleepers", r.measureAsleep},
		{"amplification", r.measureAmplified},
		{"replicas", r.measureReplicas},
		{"probes", r.probe},
		{"hedging", r.measureHedging},
	}
	for _, s := range sections {
		t.Run(s.name, func(t *testing.T) {
			measured++
			s.measure(t)
		})
	}
	if t.Failed() || measured < len(sections) { // go test -run may name one section, for its log
		return
	}
	found, err := versions()
	require.NoError(t, err)
	text, err := r.render(found)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(text), 0o644))
}

func (r *report) measureRequests(t *testing.T) {
	var err error
	r.costs, err = requests(r.rounds, r.sizes.Full)
	require.NoError(t, err)
	if raceDetector || !r.sizes.Full {
		// The race detector makes a sync.Pool forget. In a short run, its first Get counts.
		return
	}
	for _, results := range [][]result{r.costs.get, r.costs.parallel, r.costs.post} {
		assert.InDelta(t, 0, results[ours].above.allocs, 0.01, "allocations above the base")
	}
}

func (r *report) measureHeld(t *testing.T) {
	body, err := newPayload(t.TempDir(), r.sizes.Upload)
	require.NoError(t, err)
	for _, p := range append([]peer{peers[floor]}, retriers()...) {
		got := row[[]held]{name: p.name}
		for _, u := range []upload{body.getBody(), body.file(), body.stream()} {
			h, err := holdOften(min(r.rounds, 5), p, u, body.sum)
			require.NoError(t, err)
			got.got = append(got.got, h)
		}
		r.held = append(r.held, got)
	}
	for i, outcome := range []string{wholeAgain, wholeAgain, sentOnce} {
		h := r.held[ours].got[i]
		assert.Equal(t, outcome, h.outcome, heldKinds[i])
		assert.Less(t, h.peak, 512.0*1024, heldKinds[i])
	}
}

func (r *report) measureEarly(t *testing.T) {
	body, err := newPayload(t.TempDir(), r.sizes.Early)
	require.NoError(t, err)
	for _, p := range retriers() {
		if raceDetector && p.name != peers[ours].name {
			continue // other libraries may have races, which are not ours to report
		}
		got := row[[]early]{name: p.name}
		for _, u := range []upload{body.getBody(), body.file(), body.seeker(), body.stream()} {
			e, err := hurry(p, u, body.sum, r.sizes.Tries)
			require.NoError(t, err)
			got.got = append(got.got, e)
		}
		r.early = append(r.early, got)
	}
	for i, e := range r.early[0].got {
		assert.True(t, e.intact(), earlyKinds[i])
	}
}

func (r *report) measureDownloads(t *testing.T) {
	var err error
	r.downloads, err = downloads(r.sizes.DownloadRounds, int64(r.sizes.Download))
	require.NoError(t, err)
}

func (r *report) measureOpened(t *testing.T) {
	for _, p := range retriers() {
		got := row[[]int64]{name: p.name}
		for _, size := range []int{1 << 10, 1 << 20} {
			n, err := connections(p, r.sizes.Connections, size)
			require.NoError(t, err, p.name)
			got.got = append(got.got, n)
		}
		r.opened = append(r.opened, got)
	}
	// The pool has a connection. A host in trouble has three dials, and a success on a detour pays for 0.08.
	assert.LessOrEqual(t, r.opened[0].got[0], int64(1+3+0.08*float64(r.sizes.Connections)))
}

func (r *report) measureAsleep(t *testing.T) {
	r.measureAsleepAmong(t, withFloor("a wait and nothing else", sleepOnly))
}

// measureAsleepAmong measures peers. The first is the floor.
func (r *report) measureAsleepAmong(t *testing.T, among []peer) {
	// The runtime keeps memory of so many goroutines, which counts for no peer.
	sleepers(t, among[floor], r.sizes.Sleepers)
	for _, p := range among {
		r.asleep = append(r.asleep, row[asleep]{p.name, sleepers(t, p, r.sizes.Sleepers)})
	}
	assert.True(t, r.asleep[ours].got.cancelable)
}

func (r *report) measureAmplified(t *testing.T) {
	for _, p := range retriers() {
		got := row[[]amplified]{name: p.name}
		for _, failing := range []float64{1, 0.1} {
			got.got = append(got.got, amplify(t, p, r.sizes.Amplified, failing))
		}
		r.amplify = append(r.amplify, got)
	}
	assert.LessOrEqual(t, r.amplify[0].got[0].attempts, 1.05)
}

func (r *report) probe(t *testing.T) {
	for _, p := range retriers() {
		r.probes = append(r.probes, row[[]verdict]{p.name, runProbes(t, probes, p)})
	}
	for i, v := range r.probes[0].got {
		assert.True(t, v.good(), "%s: %s", probes[i].name, v)
	}
}

// measureReplicas runs in virtual time, except for hedgedhttp.
func (r *report) measureReplicas(t *testing.T) {
	rounds := r.rounds
	if raceDetector { // a round takes ten times as long
		rounds = 1
	}
	for _, p := range withFloor("no retries", once) {
		got := row[[]float64]{name: p.name}
		for _, b := range brokenReplicas {
			successes := make([]float64, rounds)
			for i := range successes {
				successes[i] = oneOfThreeBroken(t, p, b).Success()
			}
			got.got = append(got.got, median(successes))
		}
		r.replicas = append(r.replicas, got)
	}
	for _, p := range hedgers {
		if p.name == "hedgedhttp" {
			r.replicas = append(r.replicas, row[[]float64]{p.name, inRealTime(p)})
		}
	}
	t.Log("\n" + r.replicasTable())
	if *directory != "" {
		require.NoError(t, os.WriteFile(filepath.Join(*directory, "img", "replicas.svg"), []byte(r.replicasPicture()), 0o644))
	}
	for i, b := range brokenReplicas {
		assert.GreaterOrEqual(t, r.replicas[ours].got[i], 0.98, "%s, %s", b.how, b.protocol)
	}
}
