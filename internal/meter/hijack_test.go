package meter

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestTunnelChargesTurnsAsTheyEnd(t *testing.T) {
	s := open(t, 0, "", "")
	s.provider(ws(`{"type":"session.created","session":{"model":"gpt-realtime-1"}}`, false))
	for range 3 {
		s.user(ws(ask, true))
		s.provider(ws(began, false))
		s.provider(ws(words, false))
		s.provider(ws(turnDone, false))
		receive(t, s.entry.step)
	}
	if s.end(); !slices.Equal(s.entry.steps, []int64{30, 60, 90}) {
		t.Errorf("charged %v", s.entry.steps)
	}
	o := s.limiter.wait(t)
	if o.Usage != (usage.Usage{Input: 60, Output: 30}) || o.Source != SourceReported || o.Status != 101 || o.ServedModel != "gpt-realtime-1" {
		t.Errorf("got %+v", o)
	}
	s.limiter.once(t)
}

func TestTunnelThatIsCutCostsWhatWasExpected(t *testing.T) {
	for _, tc := range []struct {
		name              string
		extensions, ahead string
		server, client    []string
		input, output     int64
		source            Source
	}{
		{name: "nothing was asked", source: SourceNone},
		{name: "before the answer", client: []string{ask}, input: unlearned, output: unknownOutput, source: SourceEstimated},
		{name: "asked with the request", ahead: string(ws(ask, true)), input: unlearned, output: unknownOutput, source: SourceEstimated},
		{name: "within the answer", client: []string{ask}, server: []string{began, words}, input: unlearned, output: unknownOutput, source: SourceEstimated},
		{name: "within a long answer", server: []string{began, strings.Replace(words, "Hello", strings.Repeat("Hello", 1000), 1)}, input: unlearned, output: (5000 + 7 + 3) / 4, source: SourceEstimated},
		{name: "within the second one", server: []string{began, turnDone, began}, input: 20 + 20, output: 10 + unknownOutput, source: SourceEstimated},
		{name: "between two", server: []string{began, turnDone}, input: 20, output: 10, source: SourceReported},
		{name: "with extensions that nobody knows", extensions: "x-unknown", server: []string{turnDone}, input: unlearned, output: unknownOutput, source: SourceEstimated},
		{name: "after a failure", server: []string{began, strings.NewReplacer("completed", "failed", `{"total_tokens":30,"input_tokens":20,"output_tokens":10}`, "null").Replace(turnDone)}, source: SourceNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := open(t, 0, tc.extensions, tc.ahead)
			for _, text := range tc.client {
				s.user(ws(text, true))
			}
			for _, text := range tc.server {
				s.provider(ws(text, false))
			}
			s.end()
			o := s.limiter.wait(t)
			if o.Usage.Input != tc.input || o.Usage.Output != tc.output || o.Source != tc.source {
				t.Errorf("got %+v", o)
			}
			s.limiter.once(t)
		})
	}
}

func TestTunnelEndsBehindTheTurnThatUsesUpALimit(t *testing.T) {
	s := open(t, 60, "", "")
	s.provider(ws(turnDone, false))
	receive(t, s.entry.step)
	s.user(ws(ask, true))
	s.provider(ws(turnDone, false))
	s.wantClose()

	// what the provider still sends reaches nobody, nor does what the client asks
	if n, err := s.tunnel.Write(ws(words, false)); n == 0 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	read := make(chan error, 1)
	go func() {
		n, err := s.tunnel.Read(make([]byte, 100))
		if n > 0 {
			err = errors.New("something reached the provider")
		}
		read <- err
	}()
	for _, p := range [][]byte{ws(ask, true), ws(ask, true), {0x88, 0x82, 0, 0, 0, 0, 0x03, 0xf0}} {
		if _, err := s.client.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := receive(t, read); !errors.Is(err, errCut) {
		t.Errorf("reading ends with %v", err)
	}
	s.end()
	if o := s.limiter.wait(t); o.Usage.Total() != 60 || o.Source != SourceReported {
		t.Errorf("got %+v", o)
	}
}

// wantClose wants the client to get a close frame of ours.
func (s *socket) wantClose() {
	s.t.Helper()
	got := make([]byte, len(closeFrame))
	if _, err := io.ReadFull(s.got, got); err != nil || string(got) != closeFrame {
		s.t.Fatalf("got %q, %v", got, err)
	}
}

func TestTunnelEndsAtTheEndOfAFrame(t *testing.T) {
	s := open(t, 30, "", "")
	next := ws(words, false)
	s.provider(slices.Concat(ws(turnDone, false), next[:10]))
	cutting := s.tunnel.(*tunnel)
	for !cutting.cutting.Load() {
		runtime.Gosched() // the charge is made at the same time
	}
	s.carry(s.tunnel, s.got, slices.Concat(next[10:], next), slices.Concat(next[10:], []byte(closeFrame)))
}

func TestTunnelDoesNotWaitForAClientThatStays(t *testing.T) {
	s := open(t, 30, "", "")
	s.tunnel.(*tunnel).patience = time.Millisecond
	read := make(chan error, 1)
	go func() {
		_, err := s.tunnel.Read(make([]byte, 100))
		read <- err
	}()
	s.provider(ws(turnDone, false))
	if err := receive(t, read); !errors.Is(err, errCut) {
		t.Errorf("reading ends with %v", err)
	}
}

// A store that takes its time holds nothing up, and the end waits for it.
func TestTunnelDoesNotWaitForCharges(t *testing.T) {
	s := open(t, 0, "", "")
	s.entry.step = make(chan struct{}) // nobody takes it
	s.provider(ws(turnDone, false))
	charging := s.tunnel.(*tunnel).charges
	for begun := false; !begun; runtime.Gosched() {
		charging.mu.Lock()
		begun = !charging.due // the charge has been taken up, and waits for the store
		charging.mu.Unlock()
	}
	for range 4 {
		s.provider(ws(turnDone, false))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.end()
	}()
	select {
	case <-ended:
		t.Error("the call ended while it was being charged")
	case <-s.entry.step:
	}
	for {
		select {
		case <-s.entry.step:
			continue
		case <-ended:
		}
		break
	}
	if o := s.limiter.wait(t); o.Usage.Total() != 150 {
		t.Errorf("got %+v", o)
	}
}

// A provider that is at work on an answer when the limit is reached is paid for it.
func TestAnswersUnderWayAtTheCutAreCounted(t *testing.T) {
	s := open(t, 30, "", "")
	go io.Copy(io.Discard, s.client)
	cutting := s.tunnel.(*tunnel)
	s.tunnel.Write(ws(turnDone, false))
	for cut := false; !cut; runtime.Gosched() {
		cutting.mu.Lock()
		cut = cutting.cut
		cutting.mu.Unlock()
	}
	if n, err := s.tunnel.Write(ws(turnDone, false)); err != nil || n != len(ws(turnDone, false)) {
		t.Errorf("wrote %d, %v", n, err)
	}
	// once nobody reads the client any more, nobody else would end the tunnel
	cutting.over.Store(true)
	if _, err := s.tunnel.Write(ws(turnDone, false)); !errors.Is(err, errCut) {
		t.Errorf("got %v", err)
	}
	s.end()
	if o := s.limiter.wait(t); o.Usage.Total() != 90 {
		t.Errorf("got %+v", o)
	}
}

// reverse_proxy writes a close frame of its own when the config is replaced.
func TestTunnelIsUsedByManyGoroutines(t *testing.T) {
	s := open(t, 3000, "", "")
	go io.Copy(io.Discard, s.client)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				s.tunnel.Write(ws(turnDone, false))
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			s.client.Write(ws("{}", true))
		}
	})
	wg.Go(func() {
		p := make([]byte, 64)
		for {
			if _, err := s.tunnel.Read(p); err != nil {
				return
			}
		}
	})
	wg.Wait()
	s.end()
	if o := s.limiter.wait(t); o.Usage.Total() < 3000 || o.Usage.Total()%30 != 0 {
		t.Errorf("got %+v", o)
	}
}

func TestUpgradesThatAreNoConnectionOfTheirOwn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*http.Request)
		want   usage.Class
	}{
		{"HTTP/1.1", func(*http.Request) {}, usage.Realtime},
		{"HTTP/2", func(r *http.Request) { r.ProtoMajor = 2 }, usage.Upgrade},
		{"HTTP/3", func(r *http.Request) { r.ProtoMajor = 3 }, usage.Upgrade},
		{"extended CONNECT", func(r *http.Request) { r.Method, r.ProtoMajor = http.MethodConnect, 2 }, usage.Upgrade},
		{"a body", func(r *http.Request) { r.ContentLength = 2 }, usage.Upgrade},
		{"a body of unknown length", func(r *http.Request) { r.ContentLength = -1 }, usage.Upgrade},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := realtimeRequest()
			tc.change(r)
			if got := New().Call(r).Endpoint.Class; got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestConnectionOfACallThatIsOnlyCountedIsLeftAlone(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	l.counts = true
	near, far := net.Pipe()
	defer far.Close()
	next := handler(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if conn != near {
			t.Errorf("got %T", conn)
		}
		return err
	})
	if err := serve(&hijackable{httptest.NewRecorder(), near, ""}, realtimeRequest(), next, l); err != nil {
		t.Fatal(err)
	}
	if o := l.wait(t); o.Source != SourceNone {
		t.Errorf("got %+v", o)
	}
}

func BenchmarkTunnel(b *testing.B) {
	delta := ws(`{"type":"response.output_audio.delta","response_id":"r","delta":"`+strings.Repeat("A", 16<<10)+`"}`, false)
	for _, bb := range []struct {
		name string
		wrap func(net.Conn) net.Conn
	}{
		{"bare", func(c net.Conn) net.Conn { return c }},
		{"metered", func(c net.Conn) net.Conn { return newTunnel(c, &charges{}, nil) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			c := bb.wrap(nowhere{})
			b.SetBytes(int64(len(delta)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(delta); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// nowhere is a connection that takes everything.
type nowhere struct{ net.Conn }

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
