//go:build unix

// Package redistest starts real Redis servers for tests: single ones, clusters,
// and masters that sentinels watch, each on free loopback ports and with its data
// in a temporary directory. They end with the test.
//
// It needs redis-server in the path. A test without it fails: one that were
// skipped would say that shared counters work where nobody has looked.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
)

// Install is the line to type where redis-server is missing.
const Install = "sudo apt-get install -y redis-server"

// patience is how long a server may take for what it is asked to do. It is far
// more than it needs, for machines that are busy.
const patience = 60 * time.Second

// Server is a redis-server of the test's own. Its methods fail the test where they
// cannot do what they say.
type Server struct {
	tb   testing.TB
	dir  string
	port int
	o    options

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// Start runs an empty server until the test ends.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s := newServer(tb, opts)
	s.start()
	return s
}

func newServer(tb testing.TB, opts []Option) *Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		tb.Fatalf("this test needs redis-server; install it with: %s", Install)
	}
	s := &Server{tb: tb, dir: tb.TempDir()}
	for _, opt := range opts {
		opt(&s.o)
	}
	if s.o.tls {
		s.o.certs = newCertificates(tb, s.dir)
	}
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			tb.Logf("log of the server at %s:\n%s", s.Addr(), s.log())
		}
	})
	return s
}

// start runs the server at a port that is free.
func (s *Server) start() {
	s.tb.Helper()
	// A port that was free may be taken before the server listens there.
	for range 10 {
		s.port = loopback.Port(s.tb)
		if s.run() {
			return
		}
	}
	s.tb.Fatalf("starting redis-server: it ended at once:\n%s", s.log())
}

// run starts the process and returns once it answers. It returns false if it ended
// before that.
func (s *Server) run() bool {
	s.tb.Helper()
	out, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer out.Close()
	s.cmd = exec.Command("redis-server", s.args()...) //nolint:noctx // it is killed by the test's cleanup
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = endWithParent()
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("starting redis-server: %v", err)
	}
	exited := make(chan struct{})
	s.exited = exited
	go func(c *exec.Cmd) {
		defer close(exited)
		_ = c.Wait() // it is killed, as a rule
	}(s.cmd)

	c := redis.NewClient(s.Options())
	defer c.Close()
	for deadline := time.Now().Add(patience); ; {
		err := c.Ping(context.Background()).Err()
		if err == nil {
			return true
		}
		select {
		case <-exited:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("starting redis-server: %v\n%s", err, s.log())
		}
	}
}

func (s *Server) args() []string {
	if s.o.sentinel != "" {
		return []string{s.o.sentinel, "--sentinel", "--port", strconv.Itoa(s.port)}
	}
	port, tlsPort := s.port, 0
	if s.o.tls {
		port, tlsPort = 0, s.port
	}
	args := []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--repl-diskless-sync-delay", "0", "--daemonize", "no",
	}
	if s.o.tls {
		args = append(args, "--tls-port", strconv.Itoa(tlsPort), "--tls-ca-cert-file", s.o.certs.CA,
			"--tls-cert-file", s.o.certs.Server, "--tls-key-file", s.o.certs.ServerKey, "--tls-auth-clients", s.o.tlsClients())
	}
	return append(args, s.o.args...)
}

// Addr is the server's host and port. It stays the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Options are those that connect to the server. They are the caller's to change.
func (s *Server) Options() *redis.Options {
	o := &redis.Options{Addr: s.Addr(), Username: s.o.user, Password: s.o.password, MaxRetries: -1, DialerRetries: 1}
	if s.o.tls {
		o.TLSConfig = s.o.certs.Config()
	}
	return o
}

// Client returns a client, which is closed when the test ends.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(s.Options())
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Stop halts the process: it keeps its connections, accepts new ones as far as the
// kernel does, and answers nothing, until Continue.
func (s *Server) Stop() { s.tb.Helper(); s.signal(syscall.SIGSTOP) }

// Continue ends what Stop began.
func (s *Server) Continue() { s.tb.Helper(); s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("sending %s to redis-server: %v", sig, err)
	}
}

// Kill ends the process at once, as a crash of the machine would; connections are
// refused from then on. It does nothing if the process has ended.
func (s *Server) Kill() {
	s.tb.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Errorf("killing redis-server: %v", err)
		return
	}
	<-s.exited
}

// Restart kills the server if it runs, and starts it again at the same address with
// what it had kept: everything with Persistent, else nothing.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	for deadline := time.Now().Add(patience); !s.run(); {
		// Another process may listen at the port for a moment.
		if time.Now().After(deadline) {
			s.tb.Fatalf("restarting redis-server:\n%s", s.log())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// RestartEmpty is Restart, but the server has lost all that it had kept.
func (s *Server) RestartEmpty() {
	s.tb.Helper()
	s.Kill()
	for _, name := range []string{"appendonlydir", "appendonly.aof", "dump.rdb"} {
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			s.tb.Fatal(err)
		}
	}
	s.Restart()
}

// log is the end of what the server has written.
func (s *Server) log() []byte {
	const most = 4 << 10
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(b[max(0, len(b)-most):])
}

// wait polls until done returns nil.
func wait(tb testing.TB, what string, done func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waiting for %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func must(tb testing.TB, what string, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
