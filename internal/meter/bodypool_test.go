package meter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"pgregory.net/rapid"
)

func TestRoomsHaveFewSizes(t *testing.T) {
	sizes := map[int]int64{}
	for n := int64(leastPooled); n <= mostPooled; n += 97 {
		size, pool := roomSize(n)
		if size < n || size > n+n/8+1 || pool < 0 || pool >= len(rooms) {
			t.Fatalf("%d bytes get %d of pool %d", n, size, pool)
		}
		if was, ok := sizes[pool]; ok && was != size {
			t.Fatalf("pool %d holds %d and %d bytes", pool, was, size)
		}
		sizes[pool] = size
		if again, p := roomSize(size); again != size || p != pool {
			t.Fatalf("%d bytes of pool %d go back to %d, to be %d", size, pool, p, again)
		}
	}
	for _, n := range []int64{1, leastPooled - 1, mostPooled + 1, DefaultMaxBody} {
		if size, pool := roomSize(n); size != n || pool >= 0 {
			t.Errorf("%d bytes get %d of pool %d", n, size, pool)
		}
	}
}

// lentCall is a call that has read a body whose memory is used again.
func lentCall(t *testing.T, m *Meter, body string) (*Call, *http.Request) {
	t.Helper()
	r := newRequest(http.MethodPost, chatPath, body)
	c := m.Call(r)
	if err := c.Inspect(r); err != nil {
		t.Fatal(err)
	}
	if c.lent == nil || !c.lent.has(c.sent) {
		t.Fatal("the body is not lent")
	}
	return c, r
}

// longBody is a chat of about n bytes, all of its text of one letter.
func longBody(letter string, n int) string {
	return `{"model":"gpt-5","messages":[{"role":"user","content":"` + strings.Repeat(letter, n) + `"}]}`
}

func TestLentBodyIsReadAsAnyOther(t *testing.T) {
	m := New()
	body := longBody("a", 100_000)
	c, r := lentCall(t, m, body)
	if err := iotest.TestReader(r.Body, []byte(body)); err != nil {
		t.Error(err)
	}
	c.leave()
	nothingHeld(t, m)
}

func TestBodyThatWasGivenBackIsNotRead(t *testing.T) {
	body := longBody("a", 100_000)
	for _, read := range []int{0, 1000, len(body)} {
		m := New()
		c, r := lentCall(t, m, body)
		if _, err := io.ReadFull(r.Body, make([]byte, read)); err != nil {
			t.Fatal(err)
		}
		c.lent.giveBack()
		c.lent.giveBack() // the same
		want := errGivenBack
		if read == len(body) {
			want = nil // the end has been there to see
		}
		if b, err := io.ReadAll(r.Body); len(b) > 0 || !errors.Is(err, want) {
			t.Errorf("%d bytes read: then %d, %v", read, len(b), err)
		}
		if c.lent.keep() || c.lent.has(c.sent) {
			t.Errorf("%d bytes read: the body is kept", read)
		}
		c.leave()
	}
}

// Pieces of a body are read without its lock.
func TestBodyThatIsSentInPiecesIsKept(t *testing.T) {
	c, r := lentCall(t, New(), longBody("a", 100_000))
	if !c.Reroute(r, "other") {
		t.Fatal("the model is not replaced")
	}
	c.lent.giveBack()
	b, err := io.ReadAll(r.Body)
	if want := strings.Replace(longBody("a", 100_000), "gpt-5", "other", 1); err != nil || string(b) != want {
		t.Errorf("%d bytes go on, want %d: %v", len(b), len(want), err)
	}
	c.leave()
}

func TestBodyGoesBackAfterItsRequest(t *testing.T) {
	failed := errors.New("no upstream")
	tests := []struct {
		name  string
		next  caddyhttp.HandlerFunc
		gone  bool // the client is, when the handlers return
		again bool // the call is inspected once more, as by a route for errors
		back  bool
	}{
		{name: "with an answer", next: answer(200, "application/json", "{}"), back: true},
		{name: "after an error not", next: func(http.ResponseWriter, *http.Request) error { return failed }},
		{name: "without its client not", next: answer(200, "application/json", "{}"), gone: true},
		{name: "taken over by another route not", next: answer(200, "application/json", "{}"), again: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			body := longBody("a", 100_000)
			r := newRequest(http.MethodPost, chatPath, body)
			ctx, end := context.WithCancel(r.Context())
			defer end()
			r = r.WithContext(ctx)
			next := func(w http.ResponseWriter, r *http.Request) error {
				if test.gone {
					end()
				}
				return test.next(w, r)
			}
			c := m.Call(r)
			w := &sink{http.Header{}}
			if err := serve(w, r, handler(next), l); err != nil && !errors.Is(err, failed) {
				t.Fatal(err)
			}
			l.wait(t)
			if again := m.Call(r); test.again {
				if err := again.Inspect(r); err != nil || string(again.body) != body {
					t.Fatalf("the other route gets %d bytes, %v", len(again.body), err)
				}
				again.leave()
			}
			end()
			back := func() bool {
				c.lent.mu.Lock()
				defer c.lent.mu.Unlock()
				return c.lent.body == nil
			}
			for deadline := time.Now().Add(10 * time.Second); test.back && !back() && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if back() != test.back {
				t.Errorf("given back: %t", back())
			}
			nothingHeld(t, m)
		})
	}
}

func TestMemoryUsedAgainShowsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New()
		for _, letter := range []string{"a", "b", "c"} {
			body := longBody(letter, rapid.IntRange(40_000, 200_000).Draw(t, "size"))
			piece := rapid.IntRange(1000, 70_000).Draw(t, "piece")
			r := newRequest(http.MethodPost, chatPath, "")
			r.Body, r.ContentLength = io.NopCloser(pieces{bytes.NewReader([]byte(body)), piece}), -1
			if rapid.Bool().Draw(t, "known") {
				r.ContentLength = int64(len(body))
			}
			c := m.Call(r)
			if err := c.Inspect(r); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
				t.Fatalf("%d bytes go on, want %d: %v", len(got), len(body), err)
			}
			if c.lent != nil {
				c.lent.giveBack()
			}
			c.leave()
		}
	})
}

// An upstream that answers before it has read the body leaves a transport behind that may
// still be reading when the memory has become another call's.
func TestEarlyAnswersSendNoOtherBody(t *testing.T) {
	own := func(t *testing.T, letter string, body []byte) {
		_, text, _ := bytes.Cut(body, []byte(`"content":"`))
		text, _, _ = bytes.Cut(text, []byte(`"`))
		if n := len(bytes.Trim(text, letter)); n > 0 {
			t.Errorf("a call of %s sends %d bytes of others, of %d", letter, n, len(text))
		}
	}
	t.Run("by a transport", func(t *testing.T) {
		up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if err := rc.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
			_ = rc.Flush()
			b, _ := io.ReadAll(r.Body)
			own(t, r.Header.Get("X-Letter"), b)
		})
		callWithLetters(t, proxy(up))
	})
	t.Run("by whoever still has the request", func(t *testing.T) {
		var readers sync.WaitGroup
		var cut atomic.Int64
		callWithLetters(t, use(t, middleware(func(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
			body, letter := r.Body, r.Header.Get("X-Letter")
			readers.Go(func() {
				var b bytes.Buffer
				piece := make([]byte, 4<<10)
				for {
					n, err := body.Read(piece)
					b.Write(piece[:n])
					if errors.Is(err, errGivenBack) {
						cut.Add(1)
					}
					if err != nil {
						break
					}
					time.Sleep(50 * time.Microsecond)
				}
				own(t, letter, b.Bytes())
			})
			return answer(200, "application/json", "{}")(w, r)
		})))
		readers.Wait()
		if cut.Load() == 0 {
			t.Error("no reader came too late")
		}
	})
}

// callWithLetters has hundreds of calls answered by a handler behind a limiter, each with a
// long text of the letter that its header names.
func callWithLetters(t *testing.T, next object) {
	t.Helper()
	const calls, workers = 400, 8
	m := New()
	l := newLimiter(m, "l")
	g := newGateway(t, []object{use(t, l), next}, nil)
	done := make(chan struct{})
	defer close(done)
	go func() { // who ends a call waits for this
		for {
			select {
			case <-g.log:
			case <-l.ended:
			case <-done:
				return
			}
		}
	}()
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	var answered atomic.Int64
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			letter := string(rune('a' + worker))
			body := longBody(letter, 300_000)
			for range calls / workers {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+chatPath, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-Letter", letter)
				res, err := tr.RoundTrip(r)
				if err != nil {
					continue // cut while it was sent: the connection is closed
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	if answered.Load() == 0 {
		t.Error("no call was answered")
	}
}
