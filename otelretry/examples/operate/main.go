// Operate is a program whose servers are in trouble now and then. It shows what its metrics look
// like, and how they answer the questions of a person on call.
//
// With a prometheus on the PATH, it starts that, and prints the answers once in each calm and once in
// each trouble. With Docker, compose.yaml starts the program, a Prometheus with the alert rules, and
// a Grafana with the dashboard.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/retryhttp/retryhttp/otelretry/examples/operate/prom"
	"github.com/retryhttp/retryhttp/otelretry/examples/operate/questions"
	"github.com/retryhttp/retryhttp/otelretry/examples/operate/trouble"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "address of /metrics")
	phase := flag.Duration("phase", 30*time.Second, "length of each calm, and of each trouble")
	rounds := flag.Int("rounds", 1, "how often calm and trouble follow each other; 0 for ever")
	ask := flag.Bool("ask", true, "start a prometheus, and print the answers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *phase, *rounds, *ask); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, listen string, phase time.Duration, rounds int, ask bool) error {
	program, err := trouble.New(20 * time.Millisecond)
	if err != nil {
		return err
	}
	defer program.Close()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", program.Metrics())
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	fmt.Printf("metrics: http://%s/metrics\n", listener.Addr())

	report := func(string) error { return nil }
	switch {
	case ask && !prom.Installed():
		return errors.New("prometheus is not on the PATH: install it (on Debian: apt-get install prometheus), or set -ask=false and scrape the metrics yourself")
	case ask:
		asked, err := prom.Start(ctx, listener.Addr().String(), time.Second, "")
		if err != nil {
			return err
		}
		defer asked.Stop()
		report = func(title string) error { return print(ctx, asked, title, phase) }
	}
	for round := 0; rounds == 0 || round < rounds; round++ {
		if err := during(ctx, phase); err != nil {
			return err
		}
		if err := report("in calm"); err != nil {
			return err
		}
		program.Begin()
		if err := during(ctx, phase); err != nil {
			return err
		}
		if err := report("in trouble"); err != nil {
			return err
		}
		program.End()
	}
	return nil
}

func during(ctx context.Context, phase time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(phase):
		return nil
	}
}

// print prints the answers about the second half of a phase.
func print(ctx context.Context, asked *prom.Server, title string, phase time.Duration) error {
	fmt.Printf("\n%s:\n", title)
	window := fmt.Sprintf("%dms", (phase / 2).Milliseconds())
	for _, q := range questions.All {
		answers, err := asked.Ask(ctx, q.In(window, "1s"))
		if err != nil {
			return fmt.Errorf("%s: %w", q.ID, err)
		}
		fmt.Println(" ", q.Title)
		for _, a := range answers {
			fmt.Println("     ", a)
		}
	}
	return nil
}
