// Package prom runs a Prometheus, and asks it.
package prom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Server is a running Prometheus.
type Server struct {
	URL string
	cmd *exec.Cmd
	dir string
}

// Installed reports whether there is a prometheus to run.
func Installed() bool {
	_, err := exec.LookPath("prometheus")
	return err == nil
}

// Start runs a Prometheus that scrapes target, a host and a port, at each interval. rules is the
// path of a file of rules, or "". Stop ends the Prometheus.
func Start(ctx context.Context, target string, interval time.Duration, rules string) (_ *Server, err error) {
	dir, err := os.MkdirTemp("", "prometheus")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(configuration(target, interval, rules)), 0o600); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s.URL = "http://" + address
	s.cmd = exec.Command("prometheus",
		"--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address,
		"--enable-feature=exemplar-storage",
		"--log.level=error")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return nil, err
	}
	return s, s.ready(ctx)
}

func configuration(target string, interval time.Duration, rules string) string {
	var b strings.Builder
	ms := interval.Milliseconds()
	fmt.Fprintf(&b, "global: {scrape_interval: %dms, scrape_timeout: %dms, evaluation_interval: %dms}\n", ms, ms, ms)
	if rules != "" {
		fmt.Fprintf(&b, "rule_files: [%q]\n", rules)
	}
	fmt.Fprintf(&b, "scrape_configs: [{job_name: operate, static_configs: [{targets: [%q]}]}]\n", target)
	return b.String()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/-/ready", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("prometheus is not ready: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Stop ends the Prometheus, and removes its data.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// Answer is one series of an answer, with its value now.
type Answer struct {
	Labels map[string]string
	Value  float64
}

// String has the labels' values and the value.
func (a Answer) String() string {
	names := make([]string, 0, len(a.Labels))
	for name := range a.Labels {
		if name != "server_port" && name != "__name__" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s=%s ", name, a.Labels[name])
	}
	return b.String() + strconv.FormatFloat(a.Value, 'f', 2, 64)
}

type response struct {
	Error string
	Data  struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

// Ask returns the answer to a query.
func (s *Server) Ask(ctx context.Context, query string) ([]Answer, error) {
	var got response
	if err := s.get(ctx, "/api/v1/query?query="+url.QueryEscape(query), &got); err != nil {
		return nil, err
	}
	if got.Error != "" {
		return nil, errors.New(got.Error)
	}
	var answers []Answer
	for _, r := range got.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		answers = append(answers, Answer{r.Metric, value})
	}
	return answers, nil
}

// Exemplars returns how many exemplars of a query's series there are.
func (s *Server) Exemplars(ctx context.Context, query string, since time.Time) (int, error) {
	var got struct {
		Data []struct{ Exemplars []json.RawMessage }
	}
	path := fmt.Sprintf("/api/v1/query_exemplars?query=%s&start=%d&end=%d",
		url.QueryEscape(query), since.Unix(), time.Now().Unix()+1)
	if err := s.get(ctx, path, &got); err != nil {
		return 0, err
	}
	n := 0
	for _, series := range got.Data {
		n += len(series.Exemplars)
	}
	return n, nil
}

func (s *Server) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
