package simulation

func (r *report) introduction() {
	r.add(`
These experiments run the real Transport, TokenBucket, Gate, Hedge and Backoff functions in virtual time
(testing/synctest). The servers have a capacity and a latency. Arrivals and latencies come from seeds; the library's own
jitter does not. Figures are means over seeds, unless the text names one run. Their last digit changes between reports.

` + "`make sim`" + ` writes this report anew, and [its tables](simulation-tables.md), which are longer than what is shown here. The tests
of test/simulation assert the claims of the text, at a smaller size. Further rows of the tables are measurements.`)
}

func (r *report) commands() {
	r.add(`
In a clone of this repository, with Go and GNU make, this makes the README's picture and its figures:`)
	r.add("```\nmake sim SECTION=in-short\n```")
	r.add(`
Each table has its command below it. A command prints its section with new figures, and writes the section's plots into
docs/img. Most commands take seconds on two processors, and the slowest takes four minutes.

The [lab](lab.md) has some of the experiments too, for a policy of your own. It makes the figures of an outage in two seconds:`)
	r.add(inLab("-experiments outage -rate 1000 -outage 1s -seeds 10"))
	r.add(`
Its ` + "`policy`" + ` is the default policy unless flags change it. With -no-gate it is the budget alone, and with -budget-ratio 0.1
it is a fixed tenth. Its ` + "`retries without a budget`" + ` have no Gate either. In the lab, the peak is a mean over the runs, and
"lost later" is a part of the requests that came after the outage.

For figures of your service, give the lab your rate, your processes, your latency and your policy:`)
	r.add(inLab("-rate 50 -processes 20 -latency 80ms -uptime 10m -outage 3s -max-attempts 3"))
}

// inLab is the command of the lab, from the top of a clone.
func inLab(flags string) string { return "```\ngo run -C retrylab ./cmd/retrylab " + flags + "\n```" }
