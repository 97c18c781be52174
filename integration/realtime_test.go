package integration

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Events of a Realtime session. Each turn is 60 tokens.
const (
	sessionEvent = `{"type":"session.created","session":{"object":"realtime.session","model":"gpt-realtime-2025-08-28"}}`
	askEvent     = `{"type":"response.create"}`
	beganEvent   = `{"type":"response.created","response":{"object":"realtime.response","id":"resp_1","status":"in_progress","usage":null}}`
	audioEvent   = `{"type":"response.output_audio.delta","response_id":"resp_1","delta":"AAAAAAAAAAAAAAAA"}`
	turnEvent    = `{"type":"response.done","response":{"object":"realtime.response","id":"resp_1","status":"completed",` +
		`"usage":{"total_tokens":60,"input_tokens":20,"output_tokens":40,"input_token_details":{"text_tokens":20},"output_token_details":{"audio_tokens":40}}}}`
)

// turns is a script that answers each message with a turn, until the client closes.
func turns(p *peer) error {
	if err := p.message(sessionEvent); err != nil {
		return err
	}
	for {
		if err := p.messages(1); err != nil {
			return err
		}
		for _, e := range []string{beganEvent, audioEvent, turnEvent} {
			if err := p.message(e); err != nil {
				return err
			}
		}
	}
}

// eventually waits for a charge, which is made beside the bytes.
func (g *gateway) eventually(rule string, used, reserved int64) {
	g.t.Helper()
	var r row
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		if r = g.counter("", "app-a", rule); r.Used == used && (reserved < 0 || r.Reserved == reserved) {
			return
		}
	}
	g.t.Fatalf("%s: used %d, reserved %d; want %d, %d", rule, r.Used, r.Reserved, used, reserved)
}

// do fails the test on an error.
func (g *gateway) do(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func realtimeSite(limit, proxy string) string {
	return `{site} {` + auth + `
	token_limit {name} {
		consumer_based
		limit ` + limit + ` tokens per hour
		limit 100 requests per hour
	}
	reverse_proxy {upstream} ` + proxy + `
}`
}

const realtimePath = "/v1/realtime?model=gpt-realtime"

func TestRealtimeTurnsAreChargedWhileTheSocketIsOpen(t *testing.T) {
	for _, tt := range []struct{ name, extension string }{{"plain", ""}, {"compressed", "permessage-deflate; client_max_window_bits"}} {
		t.Run(tt.name, func(t *testing.T) {
			up := newRealtime(t, turns)
			g := start(t, up.upstream, realtimeSite("10k", ""))
			p := g.session(realtimePath, "Sec-WebSocket-Extensions", tt.extension)
			if (p.packed != nil) != (tt.extension != "") {
				t.Fatal("the extension was not agreed upon as asked")
			}
			g.do(p.messages(1))
			for turn := range int64(2) {
				g.do(p.message(askEvent))
				g.do(p.messages(3))
				g.eventually("tokens per hour", 60*(turn+1), -1)
			}
			if r := g.counter("", "app-a", "tokens per hour"); r.Reserved == 0 {
				t.Error("nothing is reserved for the next turn")
			}
			g.do(p.frame(0x88, "\x03\xe8"))
			other := <-up.peers
			p.Close()
			g.eventually("tokens per hour", 120, 0)
			g.eventually("requests per hour", 1, 0)
			if !bytes.Equal(p.wrote.Bytes(), other.read.Bytes()) {
				t.Errorf("the client sent %q, the provider got %q", p.wrote.Bytes(), other.read.Bytes())
			}
			if !bytes.Equal(p.read.Bytes(), other.wrote.Bytes()) {
				t.Errorf("the provider sent %q, the client got %q", other.wrote.Bytes(), p.read.Bytes())
			}
		})
	}
}

func TestRealtimeSocketIsClosedWhenTheLimitIsReached(t *testing.T) {
	up := newRealtime(t, turns)
	g := start(t, up.upstream, realtimeSite("100", ""))
	p := g.session(realtimePath)
	g.do(p.messages(1))
	for range 2 {
		g.do(p.message(askEvent))
		g.do(p.messages(3))
	}
	opcode, payload, err := p.next()
	if opcode != 8 || string(payload) != "\x03\xf0rate_limit_exceeded" {
		t.Fatalf("got %d %q, %v", opcode, payload, err)
	}
	g.do(p.frame(0x88, string(payload)))
	if _, _, err := p.next(); err == nil {
		t.Error("the connection goes on")
	}
	<-up.peers
	g.eventually("tokens per hour", 120, 0)

	_, resp := g.dial(keyA, realtimePath)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusTooManyRequests || !bytes.Contains(body, []byte("rate_limit_exceeded")) {
		t.Errorf("the next one: %d %s", resp.StatusCode, body)
	}
	if _, resp := g.dial(keyB, realtimePath); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("another application: %d", resp.StatusCode)
	}
}

func TestRealtimeSocketUnderALimitInShadowGoesOn(t *testing.T) {
	up := newRealtime(t, turns)
	g := start(t, up.upstream, strings.Replace(realtimeSite("100", ""), "tokens per hour", "tokens per hour shadow", 1))
	p := g.session(realtimePath)
	g.do(p.messages(1))
	for turn := range int64(4) {
		g.do(p.message(askEvent))
		g.do(p.messages(3))
		g.eventually("tokens per hour", 60*(turn+1), -1)
	}
	p.Close()
	g.eventually("tokens per hour", 240, 0)
}

func TestRealtimeIsRefusedWhereItCannotBeMetered(t *testing.T) {
	strict := strings.Replace(realtimeSite("10k", ""), "consumer_based", "consumer_based\n\t\tmode strict", 1)
	allow := strings.Replace(realtimeSite("10k", ""), "consumer_based", "consumer_based\n\t\tunmetered allow", 1)
	for _, tt := range []struct {
		name, site, path, upgrade string
		status                    int
		code                      string
	}{
		{"strict", strict, realtimePath, "websocket", 400, "request_not_bounded"},
		{"another socket", allow, "/v1/realtime/translations?model=m", "websocket", 403, "endpoint_not_metered"},
		{"another protocol", allow, realtimePath, "tunnel", 403, "endpoint_not_metered"},
		{"what mints credentials", allow, "/v1/realtime/client_secrets", "websocket", 403, "endpoint_not_metered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newRealtime(t, turns)
			g := start(t, up.upstream, tt.site)
			_, resp := g.dial(keyA, tt.path, "Upgrade", tt.upgrade)
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !bytes.Contains(body, []byte(tt.code)) || up.calls() > 0 {
				t.Errorf("%d %s, the provider was called %d times", resp.StatusCode, body, up.calls())
			}
		})
	}
}

func TestRealtimeClientThatLeavesWithinATurnPaysForIt(t *testing.T) {
	up := newRealtime(t, func(p *peer) error {
		if err := p.messages(1); err != nil {
			return err
		}
		for _, e := range []string{beganEvent, audioEvent} {
			if err := p.message(e); err != nil {
				return err
			}
		}
		return p.messages(1) // waits for the end
	})
	g := start(t, up.upstream, realtimeSite("10k", ""))
	p := g.session("/v1/realtime?model=left-alone")
	g.do(p.message(askEvent))
	g.do(p.messages(2))
	p.Close()
	// what a call is expected to use while nothing is known of its model
	g.eventually("tokens per hour", 4096+1024, 0)
}

func TestRealtimeSocketOutlivesAReload(t *testing.T) {
	up := newRealtime(t, turns)
	site := func(limit string) string {
		return realtimeSite(limit, "{\n\t\tstream_close_delay 10m\n\t}")
	}
	g := start(t, up.upstream, site("200"))
	p := g.session(realtimePath)
	g.do(p.messages(1))
	turn := func(used int64) {
		t.Helper()
		g.do(p.message(askEvent))
		g.do(p.messages(3))
		g.eventually("tokens per hour", used, -1)
	}
	turn(60)
	g.reload(up.upstream, site("1000"))
	turn(120)
	turn(180)
	// the socket keeps the limit that it was admitted under
	turn(240)
	if opcode, _, err := p.next(); opcode != 8 {
		t.Errorf("got %d, %v", opcode, err)
	}
	p.Close()
	g.eventually("tokens per hour", 240, 0)
}

func TestRealtimeSocketThatAReloadClosesIsSettledOnce(t *testing.T) {
	up := newRealtime(t, turns)
	g := start(t, up.upstream, realtimeSite("10k", ""))
	p := g.session(realtimePath)
	g.do(p.messages(1))
	g.do(p.message(askEvent))
	g.do(p.messages(3))
	g.eventually("tokens per hour", 60, -1)
	g.reload(up.upstream, realtimeSite("20k", ""))
	// reverse_proxy says so in a close frame if it comes to it
	if opcode, payload, err := p.next(); err == nil && (opcode != 8 || string(payload) != "\x03\xe9") {
		t.Errorf("got %d %q", opcode, payload)
	}
	<-up.peers
	g.eventually("tokens per hour", 60, 0)
}

func TestOtherSocketsOfModelsAreMetered(t *testing.T) {
	for _, tt := range []struct {
		name, path, ask string
		answer          []string
	}{
		{
			"Responses", "/v1/responses", `{"type":"response.create","model":"gpt-5.2","input":"Hi"}`,
			[]string{
				`{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","model":"gpt-5.2","usage":null}}`,
				`{"type":"response.completed","response":{"id":"r","object":"response","status":"completed","model":"gpt-5.2","usage":{"input_tokens":20,"output_tokens":40,"total_tokens":60}}}`,
			},
		},
		{
			"Azure", "/openai/realtime?api-version=2025-04-01-preview&deployment=mine", askEvent,
			[]string{beganEvent, turnEvent},
		},
		{
			"Gemini Live", "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
			`{"clientContent":{"turns":[{"role":"user","parts":[{"text":"Hi"}]}],"turnComplete":true}}`,
			[]string{
				`{"serverContent":{"modelTurn":{"parts":[{"text":"Hello"}]}}}`,
				`{"serverContent":{"turnComplete":true},"usageMetadata":{"promptTokenCount":20,"responseTokenCount":40,"totalTokenCount":60}}`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newRealtime(t, func(p *peer) error {
				for {
					if err := p.messages(1); err != nil {
						return err
					}
					for _, e := range tt.answer {
						if err := p.message(e); err != nil {
							return err
						}
					}
				}
			})
			g := start(t, up.upstream, realtimeSite("10k", ""))
			p := g.session(tt.path)
			for turn := range int64(3) {
				g.do(p.message(tt.ask))
				g.do(p.messages(len(tt.answer)))
				g.eventually("tokens per hour", 60*(turn+1), -1)
			}
			p.Close()
			g.eventually("tokens per hour", 180, 0)
		})
	}
}
