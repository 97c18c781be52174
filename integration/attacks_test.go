package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// What a client may try to pay less. In each test it pays, or is refused.

const chatBody = `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`

func TestHangingUpInTimeIsNotFree(t *testing.T) {
	const calls = 60
	var reached [calls]chan struct{}
	for i := range reached {
		reached[i] = make(chan struct{})
	}
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.Header.Get("X-Call"))
		if i%2 == 0 {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, event(0))
			http.NewResponseController(w).Flush()
		}
		close(reached[i])
		<-r.Context().Done() // the report would come now
	})
	g := start(t, up, drainSite("20ms", proxied))
	over := make(chan struct{}, calls)
	for i := range calls {
		ctx, hangUp := context.WithCancel(t.Context())
		t.Cleanup(hangUp)
		go func() {
			g.try(ctx, "POST", "/v1/chat/completions", keyA, streamBody, "X-Call", strconv.Itoa(i))
			over <- struct{}{}
		}()
		go func() {
			<-reached[i]
			hangUp()
		}()
	}
	for range calls {
		within(t, "hung up", over)
	}
	g.charged(calls*estimatedCost, calls)
}

func TestHangingUpUsesTheBudgetUp(t *testing.T) {
	up := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	g := start(t, up, drainSite("10ms", `
		token_limit {name} {
			consumer_based
			limit 3000 tokens per hour
			limit 10k requests per hour
			limit 100 concurrent
		}
		reverse_proxy {upstream}
	`))
	for n := range 3 { // a call costs 1,032
		c := g.begin(g.client.Transport, "http", streamBody)
		eventually(t, "at the upstream", func() bool { return up.calls() == n+1 })
		c.leave()
		within(t, "over", c.body)
		g.charged(int64(n+1)*estimatedCost, int64(n+1))
	}
	if a := g.chat(keyA); a.Status != http.StatusTooManyRequests {
		t.Errorf("got %d", a.Status)
	}
}

// encoders compress as an upstream may.
var encoders = map[string]func(io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		z, _ := zstd.NewWriter(w)
		return z
	},
}

func TestCompressedAnswersArePaid(t *testing.T) {
	for encoding, encoder := range encoders {
		for _, tt := range []struct {
			name, contentType, request, answer string
			cost                               int64
		}{
			{"a document", "application/json", chatBody, "", 60},
			{"a stream", "text/event-stream", streamBody, event(0) + usageEvent + doneEvent, reportedCost},
			{"a stream that is asked to report", "text/event-stream", strings.Replace(streamBody, "{", `{"stream_options":{"include_usage":true},`, 1), event(0) + usageEvent + doneEvent, reportedCost},
		} {
			t.Run(encoding+", "+tt.name, func(t *testing.T) {
				up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
					// whatever it was asked for
					w.Header().Set("Content-Type", tt.contentType)
					w.Header().Set("Content-Encoding", encoding)
					z := encoder(w)
					if tt.answer != "" {
						io.WriteString(z, tt.answer)
					} else {
						sixtyTokens(noHeader{z}, r)
					}
					z.Close()
				})
				g := start(t, up, drainSite("2s", proxied))
				if a := g.call("POST", "/v1/chat/completions", keyA, tt.request, "Accept-Encoding", encoding); a.Status != http.StatusOK {
					t.Fatalf("got %d", a.Status)
				}
				g.charged(tt.cost, 1)
			})
		}
	}
}

// noHeader is a writer that answers nothing but a body.
type noHeader struct{ io.Writer }

func (noHeader) Header() http.Header { return http.Header{} }
func (noHeader) WriteHeader(int)     {}

func TestStreamOptionsDoNotHideTheReport(t *testing.T) {
	up := newUpstream(t, streamer(1, nil))
	g := start(t, up, drainSite("2s", proxied))
	var tokens, requests int64
	for _, options := range []string{
		`"stream_options":{"include_usage":false}`, `"stream_options":null`, `"stream_options":{}`, `"stream_options":{"include_usage":null}`,
		`"stream_options":{"include_obfuscation":false}`, `"stream_options":{"include_usage":false,"include_obfuscation":true}`,
		`"stream_options":{"include_usage":0}`, `"stream_options":{"include_usage":"true"}`, `"stream_options":[]`, `"stream_options":"x"`,
		`"stream_options":{"include_usage":true,"include_usage":false}`, `"stream_options":{"include_usage":true},"stream_options":null`,
		`"stream_options":{"include_usage":true},"Stream_Options":{"include_usage":false}`, `"stream_options":{"Include_Usage":false}`,
		`"stream_options":{"include_us\u0061ge":false}`,
	} {
		a := g.call("POST", "/v1/chat/completions", keyA, strings.Replace(streamBody, "{", "{"+options+",", 1))
		switch a.Status {
		case http.StatusOK:
			u := g.used("", "app-a", "tokens per hour")
			if cost := u.Used - tokens; cost != reportedCost && cost < estimatedCost {
				t.Errorf("%s costs %d", options, cost)
			}
			tokens, requests = u.Used, requests+1
		case http.StatusBadRequest:
		default:
			t.Errorf("%s: %d %s", options, a.Status, a.Body)
		}
	}
	g.charged(tokens, requests)
}

func TestStreamOptionsOfResponsesAreLeftAlone(t *testing.T) {
	const completed = "event: response.completed\ndata: " + `{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","model":"gpt-4o","output":[],"usage":{"input_tokens":11,"output_tokens":200,"total_tokens":211}}}` + "\n\n"
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, completed)
	})
	g := start(t, up, drainSite("2s", proxied))
	body := `{"model":"gpt-4o","stream":true,"stream_options":{"include_obfuscation":false},"input":"hi"}`
	if a := g.call("POST", "/v1/responses", keyA, body); a.Body != completed || up.last().Body != body {
		t.Errorf("got %d %s; the upstream got %s", a.Status, a.Body, up.last().Body)
	}
	g.charged(reportedCost, 1)
}

// raw sends bytes and returns the status line of the answer, empty if there is none.
// With half, nothing more is to come, and the gateway is told so.
func (g *gateway) raw(text string, half bool) string {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, text)
	if half {
		conn.(*net.TCPConn).CloseWrite()
	}
	rest, _ := io.ReadAll(conn)
	for bytes.HasPrefix(rest, []byte("HTTP/1.1 1")) {
		_, rest, _ = bytes.Cut(rest, []byte("\r\n\r\n"))
	}
	line, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(line)
}

func TestOddRequestsArePaidOrRefused(t *testing.T) {
	const begin = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer " + keyA + "\r\n"
	chunked := func(trailer string) string {
		return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n%s\r\n", len(chatBody), chatBody, trailer)
	}
	whole := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", n, chatBody) }
	for _, tt := range []struct{ name, text, status string }{
		{"text/plain", begin + "Content-Type: text/plain\r\n" + whole(len(chatBody)), "200"},
		{"a form", begin + "Content-Type: application/x-www-form-urlencoded\r\n" + whole(len(chatBody)), ""},
		{"multipart that is none", begin + "Content-Type: multipart/form-data; boundary=x\r\n" + whole(len(chatBody)), ""},
		{"no content type", begin + whole(len(chatBody)), "200"},
		{"chunked", begin + "Content-Type: application/json\r\n" + chunked(""), "200"},
		{"chunked with trailers", begin + "Trailer: X-Prompt-Tokens\r\n" + chunked("X-Prompt-Tokens: 0\r\n"), "200"},
		{"expecting 100-continue", begin + "Expect: 100-continue\r\n" + whole(len(chatBody)), "200"},
		{"a length that is too large", begin + whole(len(chatBody)+10), "400"},
		{"a length that is too small", begin + whole(len(chatBody)-10), "400"},
		{"a length of nothing", begin + whole(0), "400"},
		{"two lengths", begin + "Content-Length: 0\r\n" + whole(len(chatBody)), "400"},
		{"a length and chunks", begin + "Content-Length: 4\r\n" + chunked(""), ""},
		{"its own counts", begin + "X-Amzn-Bedrock-Input-Token-Count: 0\r\nX-Amzn-Bedrock-Output-Token-Count: 0\r\nX-Prompt-Tokens: 0\r\nX-Usage: {\"total_tokens\":0}\r\n" + whole(len(chatBody)), "200"},
		{"another method by header", begin + "X-HTTP-Method-Override: GET\r\n" + whole(len(chatBody)), ""},
		{"a writing method by header", strings.Replace(begin, "POST", "GET", 1) + "X-HTTP-Method-Override: POST\r\n" + whole(len(chatBody)), ""},
		{"PUT", strings.Replace(begin, "POST", "PUT", 1) + whole(len(chatBody)), ""},
		{"a method of its own", strings.Replace(begin, "POST", "BREW", 1) + whole(len(chatBody)), ""},
		{"post", strings.Replace(begin, "POST", "post", 1) + whole(len(chatBody)), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newUpstream(t, nil)
			g := start(t, up, drainSite("2s", proxied))
			line := g.raw(tt.text, tt.name == "a length that is too large")
			if !strings.HasPrefix(line, "HTTP/1.1 "+tt.status) {
				t.Errorf("got %q", line)
			}
			g.paid(line, up)
		})
	}
}

// paid checks that all calls that came through were charged what they used. One that
// only reads, and that no header makes anything else, uses nothing.
func (g *gateway) paid(status string, up *upstream) {
	g.t.Helper()
	calls := int64(up.calls())
	if calls > 1 {
		g.t.Errorf("%d calls came through", calls)
	}
	if s := up.last(); s.Method == "GET" && s.Header.Get("X-Http-Method-Override") == "" {
		calls = 0
	}
	g.settled("")
	u := g.used("", "app-a", "tokens per hour")
	if u.Used != 60*calls || u.Reserved != 0 {
		g.t.Errorf("%s: %d calls came through and used %d, reserved %d", status, calls, u.Used, u.Reserved)
	}
}

func TestOddPathsArePaidOrRefused(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, drainSite("2s", proxied))
	used := int64(0)
	for _, path := range []string{
		"/v1/chat/completions", "//v1//chat//completions", "/v1/chat%2fcompletions", "/v1/chat%2Fcompletions", "/v1%2Fchat%2Fcompletions",
		"/v1/./chat/completions", "/v1/models/../chat/completions", "/v1/chat/completions/", "/v1/chat/completions//", "/V1/Chat/COMPLETIONS",
		"/v1/chat/completions/.", "/v1/chat/completions/%2e%2e/completions", "/v1/chat/completions?path=/v1/models", "/v1/chat/completions;v=1",
		"/v1/chat/complet%69ons", "/v1/moderations/../chat/completions", "/v1/moderations/%2e%2e/chat/completions", "/v1/models%2f..%2fchat/completions",
		"/v1/chat/completions%20", "/v1/chat/completions%00", "/v1/chat\\completions", "/openai/deployments/gpt-4o/chat/completions?api-version=1",
		"/v1/messages/count_tokens/../", "/v1/chat/completions/count_tokens/..", "/v1/messages%2fcount_tokens/../../chat/completions",
	} {
		before := up.calls()
		req := "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer " + keyA + "\r\nContent-Length: " + fmt.Sprint(len(chatBody)) + "\r\n\r\n" + chatBody
		line := g.raw(req, false)
		if strings.HasPrefix(line, "HTTP/1.1 400") {
			continue // net/http may not have let it in
		}
		g.settled("")
		u := g.used("", "app-a", "tokens per hour").Used
		if came := up.calls() - before; u-used != int64(came)*60 {
			t.Errorf("%s: %s, %d calls came through and cost %d", path, line, came, u-used)
		}
		used = u
	}
}

func TestReadingMethodsWithABodyReachNothingThatSpends(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		t.Run(method, func(t *testing.T) {
			up := newUpstream(t, nil)
			g := start(t, up, drainSite("2s", proxied))
			a := g.call(method, "/v1/chat/completions", keyA, chatBody)
			g.settled("")
			if u := g.used("", "app-a", "requests per hour"); u.Used != 1 {
				t.Errorf("%d: counted %d requests", a.Status, u.Used)
			}
			if s := up.last(); s.Method != method || s.Header.Get("X-Http-Method-Override") != "" {
				t.Errorf("the upstream got %s %v", s.Method, s.Header)
			}
		})
	}
}
