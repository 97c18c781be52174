package meter

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func compress(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// endless is a body without an end.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

func TestReadBody(t *testing.T) {
	const limit = 100_000
	tooLong := strings.Repeat("x", limit+1)
	refused := caddyhttp.Error(http.StatusRequestEntityTooLarge, errors.New("limit of request_body"))
	tests := []struct {
		name   string
		body   io.Reader
		length int64
		want   string
		err    error
		status int
	}{
		{name: "with its exact length", body: strings.NewReader(plainBody), length: int64(len(plainBody)), want: plainBody},
		{name: "of unknown length", body: strings.NewReader(plainBody), length: -1, want: plainBody},
		{name: "byte by byte", body: iotest.OneByteReader(strings.NewReader(plainBody)), length: -1, want: plainBody},
		{name: "whose end comes with its last bytes", body: iotest.DataErrReader(strings.NewReader(plainBody)), length: -1, want: plainBody},
		{name: "empty", body: strings.NewReader(""), length: 0},
		{name: "empty of unknown length", body: strings.NewReader(""), length: -1},
		{name: "as long as the limit", body: strings.NewReader(tooLong[1:]), length: limit, want: tooLong[1:]},
		{name: "as long as the limit, of unknown length", body: strings.NewReader(tooLong[1:]), length: -1, want: tooLong[1:]},
		{name: "longer than announced", body: strings.NewReader(plainBody), length: 3, want: plainBody},
		{name: "shorter than announced", body: strings.NewReader("short"), length: 6, err: io.ErrUnexpectedEOF, status: 400},
		{name: "announced over the limit", body: iotest.ErrReader(errors.New("must not be read")), length: limit + 1, err: ErrTooLarge},
		{name: "over the limit", body: strings.NewReader(tooLong), length: -1, err: ErrTooLarge},
		{name: "without an end", body: new(endless), length: -1, err: ErrTooLarge},
		{name: "that breaks off", body: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(io.ErrUnexpectedEOF)), length: 9, err: io.ErrUnexpectedEOF, status: 400},
		{name: "over a limit of Caddy's", body: io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(refused)), length: -1, status: 413},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			m.SetOptions(Options{MaxBody: limit})
			r := newRequest(http.MethodPost, chatPath, "")
			r.Body, r.ContentLength = io.NopCloser(test.body), test.length
			got, held, err := m.readBody(r, "a")
			if test.err != nil && !errors.Is(err, test.err) || (err != nil) != (test.err != nil || test.status != 0) {
				t.Fatalf("got error %v", err)
			}
			if test.status != 0 && statusOf(err) != test.status {
				t.Errorf("status %d", statusOf(err))
			}
			if string(got) != test.want {
				t.Errorf("got %d bytes %.40q", len(got), got)
			}
			if held < int64(cap(got)) || held > limit+1 || held != m.bodies.used.Load() {
				t.Errorf("%d bytes held, %d charged, capacity %d", held, m.bodies.used.Load(), cap(got))
			}
			if e, ok := test.body.(*endless); ok && e.read > limit+1 {
				t.Errorf("read on for %d bytes", e.read)
			}
			m.bodies.release("a", held)
			nothingHeld(t, m)
		})
	}
}

func TestReadBodyReturnsEveryByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 300_000).Draw(t, "size")
		limit := rapid.IntRange(1, 300_000).Draw(t, "limit")
		piece := rapid.IntRange(1, 70_000).Draw(t, "piece")
		known := rapid.Bool().Draw(t, "known")
		body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		m := New()
		m.SetOptions(Options{MaxBody: int64(limit)})
		r := newRequest(http.MethodPost, chatPath, "")
		r.Body, r.ContentLength = io.NopCloser(pieces{bytes.NewReader(body), piece}), -1
		if known {
			r.ContentLength = int64(size)
		}
		got, held, err := m.readBody(r, "a")
		if (err != nil) != (size > limit) || err == nil && !bytes.Equal(got, body) {
			t.Fatalf("got %d bytes of %d under %d, %v", len(got), size, limit, err)
		}
		if m.bodies.used.Load() != held || held > int64(limit)+1 || held < int64(cap(got)) {
			t.Fatalf("held %d, charged %d", held, m.bodies.used.Load())
		}
	})
}

// pieces reads no more than n bytes at a time.
type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(p.n, len(b))]) }

func TestBodiesShareABudget(t *testing.T) {
	t.Run("full", func(t *testing.T) {
		m := New()
		m.SetOptions(Options{MaxBuffered: 1000})
		first, second := newRequest(http.MethodPost, chatPath, plainBody), newRequest(http.MethodPost, chatPath, strings.Repeat(" ", 1000))
		a, b := m.Call(first), m.Call(second)
		if err := a.Inspect(first); err != nil {
			t.Fatal(err)
		}
		if err := b.Inspect(second); !errors.Is(err, ErrBusy) {
			t.Errorf("got error %v", err)
		}
		a.leave()
		b.leave()
		nothingHeld(t, m)
	})
	t.Run("full while a body grows", func(t *testing.T) {
		m := New()
		m.SetOptions(Options{MaxBuffered: 2 * firstRead})
		r := newRequest(http.MethodPost, chatPath, strings.Repeat(" ", 2*firstRead))
		c := m.Call(r)
		if err := c.Inspect(r); !errors.Is(err, ErrBusy) {
			t.Errorf("got error %v", err)
		}
		c.leave()
		nothingHeld(t, m)
	})
	t.Run("a length alone takes little", func(t *testing.T) {
		m := New()
		r := newRequest(http.MethodPost, chatPath, "")
		waits, sent := io.Pipe()
		r.Body, r.ContentLength = waits, DefaultMaxBody
		c := m.Call(r)
		done := make(chan error)
		go func() { done <- c.Inspect(r) }()
		if _, err := sent.Write([]byte("{")); err != nil {
			t.Fatal(err)
		}
		if n := m.bodies.used.Load(); n != firstRead {
			t.Errorf("%d bytes taken", n)
		}
		sent.CloseWithError(io.ErrUnexpectedEOF)
		if err := receive(t, done); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got error %v", err)
		}
		c.leave()
		nothingHeld(t, m)
	})
	t.Run("what has arrived is believed", func(t *testing.T) {
		const size = believed*firstRead + 1000
		m := New()
		last, _ := roomSize(size + 1)
		sizes := []int64{firstRead, believed * firstRead, last}
		for i, n := range sizes[:len(sizes)-1] {
			if got := m.grown(n, size); got != sizes[i+1] {
				t.Errorf("%d bytes grow to %d, want %d", n, got, sizes[i+1])
			}
		}
		if got := m.grown(firstRead, -1); got != 2*firstRead {
			t.Errorf("of unknown length, %d bytes grow to %d", firstRead, got)
		}
		if got := m.grown(firstRead, DefaultMaxBody); got != believed*firstRead {
			t.Errorf("of the longest, %d bytes grow to %d", firstRead, got)
		}
	})
	t.Run("never over", func(t *testing.T) {
		var b budget
		b.max.Store(10)
		b.share.Store(10)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 1000 {
					if b.take("a", 3) {
						if n := b.used.Load(); n > 10 {
							t.Errorf("%d taken", n)
						}
						b.release("a", 3)
					}
				}
			})
		}
		wg.Wait()
		if b.used.Load() != 0 {
			t.Errorf("%d left", b.used.Load())
		}
	})
	t.Run("a huge one does not disturb a small one", func(t *testing.T) {
		var b budget
		b.max.Store(10)
		b.share.Store(10)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					b.take("a", 100)
				}
			}
		})
		for range 10_000 {
			if !b.take("a", 10) {
				t.Error("refused")
				break
			}
			b.release("a", 10)
		}
		close(stop)
		wg.Wait()
	})
}

func TestDecodedBodiesAreBounded(t *testing.T) {
	bomb := compress(t, strings.Repeat(" ", 4<<20)+plainBody)
	tests := []struct {
		name     string
		body     string
		encoding string
		options  Options
		err      error
		model    string
	}{
		{name: "of usual size", body: compress(t, plainBody), encoding: "gzip", model: "gpt-5"},
		{name: "much larger than sent", body: bomb, encoding: "gzip", model: "gpt-5"},
		{name: "over the limit", body: bomb, encoding: "gzip", options: Options{MaxBody: 1 << 20}, err: usage.ErrBodyTooLarge},
		{name: "over what is left", body: bomb, encoding: "gzip", options: Options{MaxBuffered: 1 << 20}, err: ErrBusy},
		{name: "in no known encoding", body: plainBody, encoding: "rot13", err: usage.ErrUnknownEncoding},
		{name: "in another encoding than told", body: plainBody, encoding: "gzip", err: &usage.BadRequest{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			m.SetOptions(test.options)
			r := newRequest(http.MethodPost, chatPath, test.body, "Content-Encoding", test.encoding)
			model, release, err := m.RequestModel(r)
			var bad *usage.BadRequest
			if errors.As(test.err, &bad) {
				if !errors.As(err, &bad) {
					t.Errorf("got error %v", err)
				}
			} else if !errors.Is(err, test.err) {
				t.Errorf("got error %v", err)
			}
			if model != test.model {
				t.Errorf("model %q", model)
			}
			// what was checked goes on; what could not be read stays as it came
			want, encoding := test.body, test.encoding
			if test.err == nil {
				encoding = ""
				plain, err := usage.DecodeBody(test.encoding, []byte(test.body), DefaultMaxBody)
				if err != nil {
					t.Fatal(err)
				}
				want = string(plain)
			}
			if got, _ := io.ReadAll(r.Body); string(got) != want || r.Header.Get("Content-Encoding") != encoding {
				t.Errorf("%d bytes go on, %q", len(got), r.Header)
			}
			release()
			nothingHeld(t, m)
		})
	}
}

func TestBodyGoesOnWithItsLength(t *testing.T) {
	r := newRequest(http.MethodPost, chatPath, plainBody, "Transfer-Encoding", "chunked")
	r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
	r.GetBody = func() (io.ReadCloser, error) { return nil, nil }
	m := New()
	_, release, err := m.RequestModel(r)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if r.ContentLength != int64(len(plainBody)) || r.TransferEncoding != nil || r.GetBody != nil {
		t.Errorf("length %d, %v", r.ContentLength, r.TransferEncoding)
	}
	if got := r.Header["Content-Length"]; len(got) != 1 || got[0] != "61" || r.Header["Transfer-Encoding"] != nil {
		t.Errorf("header %v", r.Header)
	}
	if err := iotest.TestReader(r.Body, []byte(plainBody)); err != nil {
		t.Error(err)
	}
}

// A second try of reverse_proxy's, without request_buffers, finds the body read. It
// must fail: an empty body or the rest of one would be answered, and billed.
func TestBodyThatWasReadIsNotSentAgain(t *testing.T) {
	for _, read := range []int{5, len(plainBody)} {
		whole := make(chan bool, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			whole <- err == nil
		}))
		r, err := http.NewRequest(http.MethodPost, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		setBody(r, int64(len(plainBody)), strings.NewReader(plainBody))
		if _, err := io.ReadFull(r.Body, make([]byte, read)); err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		tr := new(http.Transport)
		if resp, err := tr.RoundTrip(r); err == nil {
			resp.Body.Close()
			t.Errorf("%d bytes read: the rest was sent, and answered with %s", read, resp.Status)
		}
		tr.CloseIdleConnections()
		srv.Close()
		select {
		case ok := <-whole:
			if ok {
				t.Errorf("%d bytes read: the server saw a whole request", read)
			}
		default: // it never got that far
		}
	}
}

func TestEmptyBodyIsNone(t *testing.T) {
	r := newRequest(http.MethodPost, "/v1/other", "")
	r.Body = nil
	m := New()
	if _, release, err := m.RequestModel(r); err != nil {
		t.Error(err)
	} else {
		release()
	}
	if r.Body != http.NoBody || r.ContentLength != 0 {
		t.Errorf("body %T, length %d", r.Body, r.ContentLength)
	}
	nothingHeld(t, m)
}

func TestHeldBodyOfAFreeCallIsItsCallers(t *testing.T) {
	m := New()
	r := newRequest(http.MethodPost, "/v1/files", strings.Repeat("x", 1000))
	caddyhttp.SetVar(r.Context(), VarKeyID, "k")
	c := m.Call(r)
	if held, err := c.Hold(r); !held || err != nil {
		t.Fatalf("held %t, error %v", held, err)
	}
	if m.bodies.by["k"] < 1000 || m.bodies.by[""] != 0 {
		t.Errorf("taken are %v", m.bodies.by)
	}
	c.leave()
	nothingHeld(t, m)
}
