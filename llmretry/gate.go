package llmretry

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

const (
	// mostHeld bounds what is held back of an answer, in bytes.
	mostHeld = 64 << 10
	// mostPeek is how long a stream may send nothing but comments before its header goes
	// on: clients take silence for a dead connection.
	mostPeek = 2 * time.Second
)

// gate is the response writer of an attempt. It holds back an answer that another attempt
// may change, and of one that may be an error under status 200 the beginning. All others
// pass at once and unbuffered.
type gate struct {
	http.ResponseWriter
	t       *tries
	passage *meter.Passage
	detour  bool // a fallback's

	mode   mode
	peek   peek
	status int // the final one; 0 before
	failed int // the status that an error under status 200 stands for; 0 while it is not known
	since  time.Time
	header http.Header // as it was with the status
	held   []byte
}

// peek says what the beginning of a body tells, and with failure the status that the error
// stands for, or 0 where all of the body is needed to tell.
type peek func(beginning []byte) (verdict, int)

// mode is what a gate does with an answer.
type mode uint8

const (
	waiting mode = iota // nothing has come
	passing
	peeking // until the beginning tells what it is
	holding
)

// Unwrap lets http.ResponseController reach what it needs: a connection is taken over
// after a status that passes.
func (g *gate) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// WriteHeader decides by the status what is done with the answer.
func (g *gate) WriteHeader(status int) {
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		g.ResponseWriter.WriteHeader(status)
		return
	}
	if g.mode != waiting {
		if g.mode == passing {
			g.ResponseWriter.WriteHeader(status) // superfluous: net/http says so
		}
		return
	}
	g.status = status
	switch {
	case g.t.retryable(status):
		g.mode = holding
	case status == http.StatusOK:
		if g.peek = peekInto(g.Header()); g.peek != nil {
			g.mode = peeking
			break
		}
		fallthrough
	default:
		g.pass()
		return
	}
	// trailers come into the same map once the body is through
	g.header, g.since = g.Header().Clone(), time.Now()
}

// peekInto is what looks at the beginning of a body; nil if nothing does.
func peekInto(h http.Header) peek {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil
	}
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/event-stream":
		return firstEvent
	case "application/json":
		return firstMember
	}
	return nil
}

// pass sends the header; from here on nothing is held back.
func (g *gate) pass() {
	g.mode = passing
	g.t.judge(g.status)
	g.follow()
	g.passage.Publish()
	g.ResponseWriter.WriteHeader(g.status)
}

// follow has a fallback's answer priced by the model that its routes ask for. The
// client's own name, and what it costs, is that of the route behind.
func (g *gate) follow() {
	if g.detour {
		g.t.call.Follow(g.passage)
	}
}

// Write passes a piece on, or holds it back.
func (g *gate) Write(p []byte) (int, error) {
	if g.mode == waiting {
		g.WriteHeader(http.StatusOK)
	}
	if g.mode == passing {
		return g.ResponseWriter.Write(p)
	}
	if g.mode == peeking {
		all := p
		if len(g.held) > 0 {
			all = slices.Concat(g.held, p)
		}
		switch v, status := g.peek(all); {
		case v == content, v == failure && status != 0 && !g.t.retryable(status):
			return g.letGo(p)
		case v == failure:
			g.mode, g.failed = holding, status
		case time.Since(g.since) > mostPeek:
			return g.letGo(p)
		}
	}
	if len(g.held)+len(p) > mostHeld {
		return g.letGo(p)
	}
	g.held = append(g.held, p...)
	return len(p), nil
}

// letGo sends what was held back, and p.
func (g *gate) letGo(p []byte) (int, error) {
	h := g.Header()
	trailers := h.Clone()
	maps.DeleteFunc(trailers, func(name string, _ []string) bool {
		_, ok := g.header[name]
		return ok
	})
	clear(h)
	maps.Copy(h, g.header)
	held := g.held
	g.held = nil
	g.pass()
	maps.Copy(h, trailers)
	if len(held) > 0 {
		if _, err := g.ResponseWriter.Write(held); err != nil {
			return 0, err
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	return g.ResponseWriter.Write(p)
}

// ReadFrom leaves to the writer underneath what is not held back.
func (g *gate) ReadFrom(r io.Reader) (int64, error) {
	if g.mode == waiting {
		g.WriteHeader(http.StatusOK)
	}
	if g.mode == passing {
		return io.Copy(g.ResponseWriter, r)
	}
	return io.Copy(struct{ io.Writer }{g}, r)
}

// FlushError flushes what the client may have by now. It also sends a header that was not
// written, as net/http does.
func (g *gate) FlushError() error {
	if g.mode == waiting {
		g.WriteHeader(http.StatusOK)
	}
	if g.mode != passing {
		return nil
	}
	return http.NewResponseController(g.ResponseWriter).Flush()
}

// holds tells whether the client has seen nothing of an answer that has begun.
func (g *gate) holds() bool { return g.mode == peeking || g.mode == holding }

// finish is called when an answer that is held back has come to its end. It returns the
// status of the failure, or 0 if it was none: the client has it then.
func (g *gate) finish() (status int, err error) {
	if g.mode == holding {
		switch {
		case g.status != http.StatusOK:
			return g.status, nil
		case g.failed == 0:
			g.failed = errorStatus(g.held)
		}
		if g.t.retryable(g.failed) {
			return g.failed, nil
		}
	}
	_, err = g.letGo(nil)
	return 0, err
}

// Interface guards
var (
	_ http.ResponseWriter = (*gate)(nil)
	_ io.ReaderFrom       = (*gate)(nil)
)
