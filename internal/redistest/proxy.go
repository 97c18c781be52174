//go:build unix

package redistest

import (
	"bufio"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Faults are what a Proxy does to what passes. The zero value is nothing.
type Faults struct {
	// Requests and Replies are the shares, from 0 to 1, of those that are lost. A
	// lost request never reaches the server; one whose reply is lost has been
	// executed. What a client says to set up a connection is never lost.
	Requests, Replies float64
	// Hang leaves the connection of what was lost open, so that the client waits
	// until its own time is over. Else the connection is closed.
	Hang bool
	// Delay is how long each request is kept back.
	Delay time.Duration
	// Partition lets nothing pass, neither way, and keeps it until the partition
	// ends, as a network does that repeats what it lost: the server then executes
	// requests that their client has given up.
	Partition bool
	// Refuse closes connections as soon as they are made.
	Refuse bool
}

// Proxy stands before a server that speaks plain TCP, and can lose what passes.
// It does not carry Pub/Sub.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	faults Faults
	healed chan struct{} // closed when no partition is on
	random *rand.Rand
	conns  map[net.Conn]struct{}
	closed bool
}

// NewProxy listens on a free loopback port until the test ends, and passes on what
// comes to the server. What is lost depends on the seed, and on the order in which
// requests come.
func NewProxy(tb testing.TB, s *Server, seed uint64) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, "starting a proxy", err)
	p := &Proxy{
		listener: l, target: s.Addr(), healed: make(chan struct{}),
		random: rand.New(rand.NewPCG(seed, seed)), conns: make(map[net.Conn]struct{}),
	}
	close(p.healed)
	p.wg.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Addr is the host and port at which the proxy stands.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set puts faults in force, for connections that are open too, in the place of
// those before.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.faults.Partition
	p.faults = f
	switch {
	case f.Partition && !was:
		p.healed = make(chan struct{})
	case !f.Partition && was:
		close(p.healed)
	}
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Set(Faults{})
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) current() Faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// pass returns once there is no partition.
func (p *Proxy) pass() {
	for {
		p.mu.Lock()
		healed, on := p.healed, p.faults.Partition
		p.mu.Unlock()
		if !on {
			return
		}
		<-healed
	}
}

// keep has Cut close the connection. It returns false if the proxy is closed.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.current().Refuse || !p.keep(c) {
			_ = c.(*net.TCPConn).SetLinger(0) // a reset, as from a port where nobody listens
			p.forget(c)
			continue
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// fate is what becomes of a request.
type fate uint8

const (
	passed fate = iota
	requestLost
	replyLost
)

func (p *Proxy) fate(command string) (fate, Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults
	switch command {
	case "hello", "auth", "select", "client", "readonly":
		return passed, f
	}
	switch n := p.random.Float64(); {
	case n < f.Requests:
		return requestLost, f
	case n < f.Requests+f.Replies:
		return replyLost, f
	default:
		return passed, f
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	p.pass()
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(server) {
		if err == nil {
			_ = server.Close()
		}
		return
	}
	defer p.forget(server)

	// Replies come in the order of requests, so that each finds its fate here.
	fates := make(chan fate, 1<<16)
	p.wg.Go(func() {
		defer close(fates)
		p.requests(client, server, fates)
	})
	p.replies(client, server, fates)
}

// requests passes on what the client asks, until a request is lost.
func (p *Proxy) requests(client, server net.Conn, fates chan<- fate) {
	r := bufio.NewReader(client)
	for {
		raw, command, err := readRequest(r)
		if err != nil {
			// The client has gone; what it has asked for is executed all the same.
			_ = server.(*net.TCPConn).CloseWrite()
			return
		}
		what, f := p.fate(command)
		time.Sleep(f.Delay)
		p.pass()
		if what == requestLost {
			fates <- what
			return
		}
		fates <- what
		if _, err := server.Write(raw); err != nil {
			return
		}
	}
}

// replies passes on what the server answers, until something is lost.
func (p *Proxy) replies(client, server net.Conn, fates <-chan fate) {
	r := bufio.NewReader(server)
	for what := range fates {
		var raw []byte
		if what != requestLost {
			var err error
			if raw, err = readReply(r); err != nil {
				return
			}
		}
		if what != passed {
			if p.current().Hang {
				// until the client gives up, or the test ends
				_, _ = client.Read(make([]byte, 1))
			}
			return
		}
		p.pass()
		if _, err := client.Write(raw); err != nil {
			return
		}
	}
}
