// Upload shows a large file that is sent twice, because the server rejects the first attempt
// in the middle of the upload. This takes little memory: each attempt reads the file in place.
package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"github.com/retryhttp/retryhttp"
)

const (
	mebibyte = 1 << 20
	size     = 64 * mebibyte
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() (err error) {
	dir, err := os.MkdirTemp("", "upload")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "large")
	sum, err := makeFile(path)
	if err != nil {
		return err
	}

	var attempts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hash := sha256.New()
		if attempts.Add(1) == 1 {
			io.CopyN(hash, r.Body, mebibyte) // the rest is never read
			http.Error(w, "busy", http.StatusServiceUnavailable)
		} else if n, err := io.Copy(hash, r.Body); err != nil || n != size || string(hash.Sum(nil)) != sum {
			http.Error(w, "not the file", http.StatusBadRequest)
		} else {
			w.WriteHeader(http.StatusCreated)
		}
	}))
	defer server.Close()

	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // for the error return below; the Transport closes the file as well
	// The body is the file itself. An io.NopCloser would hide that the file can be read from
	// its start again, and the file would count as a stream.
	req, err := http.NewRequest(http.MethodPut, server.URL, file)
	if err != nil {
		return err
	}
	req.ContentLength = size // net/http does not ask a file for its length
	client := &http.Client{Transport: retryhttp.New(nil, retryhttp.Policy{})}

	// TotalAlloc counts every byte that this process ever put on the heap, freed or not. So
	// the bound covers the sum of the client, the server and net/http on both sides. The sum
	// does not contain the file. A copy of the file in memory would be in the sum, and would
	// be 64 times the bound.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, err := client.Do(req)
	runtime.ReadMemStats(&after)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	fmt.Printf("%s at attempt %d: 64 MiB arrived, and their SHA-256 is the file's\n",
		resp.Status, retryhttp.OutcomeOf(resp).Attempts)
	if used := after.TotalAlloc - before.TotalAlloc; used >= mebibyte {
		return fmt.Errorf("%d bytes were allocated for it, want less than 1 MiB", used)
	}
	fmt.Println("memory allocated for it by client and server: less than 1 MiB")
	return nil
}

// makeFile writes a file and returns its SHA-256. All its blocks differ, so that a lost or
// repeated block changes the sum.
func makeFile(path string) (sum string, err error) {
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	both := io.MultiWriter(file, hash)
	block := make([]byte, mebibyte)
	for i := range size / mebibyte {
		copy(block, fmt.Sprint("block ", i))
		if _, err := both.Write(block); err != nil {
			return "", err
		}
	}
	return string(hash.Sum(nil)), nil
}
