package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/retryhttp/retryhttp/internal/test/certificate"
	"github.com/retryhttp/retryhttp/internal/test/fault"
	"github.com/retryhttp/retryhttp/internal/test/loopback"
)

// http3World has a server that dies without a word every few seconds, and another in its place.
var http3World = &fault.Protocol{Name: "HTTP/3", Major: 3, Twice: true, Start: startHTTP3}

// lifetime is how long a server lives, and silence is for how long a client waits for a dead one.
const (
	lifetime = 7 * time.Second
	silence  = 2 * time.Second
)

func startHTTP3(_ fault.Soak, _ *fault.Protocol, handler *fault.Server) (*fault.World, error) {
	s := &quicServer{handler}
	first, err := s.listen(loopback.OwnAddress())
	if err != nil {
		return nil, err
	}
	base := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: certificate.Pool(), ServerName: "service.example"},
		QUICConfig:      &quic.Config{MaxIdleTimeout: silence, HandshakeIdleTimeout: silence},
	}
	addr, stop := first.socket.LocalAddr().String(), make(chan struct{})
	var living sync.WaitGroup
	living.Go(func() { s.live(first, addr, stop) })
	return &fault.World{
		URL:   func(uint64) string { return "https://" + addr },
		Base:  base,
		Conns: func() int { return 0 }, // one on which a request failed is not among the base's any more
		Close: func() {
			_ = base.Close()
			close(stop)
			living.Wait()
		},
	}, nil
}

type quicServer struct{ handler http.Handler }

// life is a server until it dies.
type life struct {
	http   *http3.Server
	quic   *quic.Transport
	socket net.PacketConn
	done   chan struct{}
}

func (s *quicServer) listen(addr string) (*life, error) {
	socket, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return nil, err
	}
	l := &life{socket: socket, quic: &quic.Transport{Conn: socket}, done: make(chan struct{})}
	l.http = &http3.Server{Handler: s.handler, ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
		return fault.WithDrop(ctx, func() { _ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeInternalError), "") })
	}}
	config := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate.Own()}})
	listener, err := l.quic.ListenEarly(config, &quic.Config{MaxIdleTimeout: silence})
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	go func() {
		defer close(l.done)
		_ = l.http.ServeListener(listener)
	}()
	return l, nil
}

// end closes a server. If its socket is closed already, its clients do not learn of it.
func (l *life) end() {
	_ = l.http.Close()
	_ = l.quic.Close()
	_ = l.socket.Close()
	<-l.done
}

// live replaces the server at addr again and again.
func (s *quicServer) live(now *life, addr string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			now.end()
			return
		case <-time.After(lifetime):
		}
		_ = now.socket.Close()
		next, err := s.listen(addr)
		now.end()
		if err != nil {
			panic(err) // nobody else has this address
		}
		now = next
	}
}
