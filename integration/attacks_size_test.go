package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMadeUpConsumersAreBounded(t *testing.T) {
	const room, most = 100, 2000
	site := func(entities int) string {
		return fmt.Sprintf("{\n\tllm {\n\t\tstore memory {\n\t\t\tmax_entities %d\n\t\t}\n\t}\n}\n", entities) + `{site} {` + auth + `
			token_limit {name}-made-up {
				key {header.X-Team}
				limit 10k requests per hour
			}
			token_limit {name} {
				consumer_based
				limit 10M tokens per hour
				limit 10k requests per hour
			}
			reverse_proxy {upstream}
		}`
	}
	up := newUpstream(t, nil)
	g := start(t, up, site(room))
	served := 0
	for i := range most {
		a := g.call("POST", "/v1/chat/completions", keyA, chatBody, "X-Team", fmt.Sprintf("team-%d", i))
		switch {
		case a.Status == http.StatusOK:
			served++
		case a.Status != http.StatusServiceUnavailable || !strings.Contains(a.Body, `"limits_full"`) || a.Header.Get("Retry-After") == "":
			t.Fatalf("call %d: %d %s", i, a.Status, a.Body)
		}
	}
	if served > room || up.calls() != served {
		t.Errorf("%d made-up consumers were served, %d calls came through", served, up.calls())
	}
	// consumers that the operator named are never refused for the others' sake
	g.reload(up, strings.Replace(site(room), "key {header.X-Team}", "consumer_based", 1))
	for _, key := range []string{keyA, keyB, keyUnbound} {
		if a := g.chat(key); a.Status != http.StatusOK {
			t.Errorf("a known consumer: %d %s", a.Status, a.Body)
		}
	}
	if u := g.used("", "app-a", "requests per hour"); u.Used != int64(served)+1 {
		t.Errorf("counted %d requests, want %d", u.Used, served+1)
	}
	if u := g.used("", "app-a", "tokens per hour"); u.Used != 60*(int64(served)+1) {
		t.Errorf("used %d tokens", u.Used)
	}
}

func TestMadeUpModelsArePaid(t *testing.T) {
	const calls = 2000
	up := newUpstream(t, nil)
	g := start(t, up, drainSite("2s", proxied))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range calls / 8 {
				body := strings.Replace(chatBody, "gpt-4o-mini", fmt.Sprintf("made-up-%d-%d", worker, i), 1)
				if a, err := g.try(t.Context(), "POST", "/v1/chat/completions", keyA, body); err != nil || a.Status != http.StatusOK {
					t.Errorf("%d, %v", a.Status, err)
					return
				}
			}
		})
	}
	wg.Wait()
	g.charged(60*calls, calls)
}

const sizedSite = `{
	llm {
		meter {
			max_body     64KiB
			max_buffered 256KiB
		}
	}
	servers {
		timeouts {
			read_body 300ms
		}
	}
}
{site} {` + "\n"

func TestBodyThatNeverEndsGivesItsRoomBack(t *testing.T) {
	const head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + keyA + "\r\n"
	for _, tt := range []struct {
		name, header, status string
		send                 func(w io.Writer)
	}{
		{"announced and too large", "Content-Length: 100000000\r\n\r\n", "413", func(io.Writer) {}},
		{"chunks without end", "Transfer-Encoding: chunked\r\n\r\n", "413", func(w io.Writer) {
			for range 20 {
				fmt.Fprintf(w, "2000\r\n%s\r\n", strings.Repeat(" ", 0x2000))
			}
		}},
		{"silence", "Content-Length: 60000\r\n\r\n", "", func(w io.Writer) { io.WriteString(w, `{"model":`) }},
		{"silence after a chunk", "Transfer-Encoding: chunked\r\n\r\n", "", func(w io.Writer) { fmt.Fprintf(w, "8000\r\n%s\r\n", strings.Repeat(" ", 0x8000)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newUpstream(t, nil)
			g := start(t, up, sizedSite+auth+proxied+"}")
			for range 5 { // more than there is room for
				conn, err := net.Dial("tcp", g.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				conn.SetDeadline(time.Now().Add(20 * time.Second))
				io.WriteString(conn, head+tt.header)
				tt.send(conn)
				line, err := bufio.NewReader(conn).ReadString('\n')
				if tt.status != "" && !strings.HasPrefix(line, "HTTP/1.1 "+tt.status) || strings.HasPrefix(line, "HTTP/1.1 2") {
					t.Errorf("got %q, %v", line, err)
				}
			}
			if n := up.calls(); n != 0 {
				t.Errorf("%d calls came through", n)
			}
			large := strings.Replace(chatBody, `"hi"`, `"`+strings.Repeat("x", 60_000)+`"`, 1)
			if a := g.call("POST", "/v1/chat/completions", keyA, large); a.Status != http.StatusOK {
				t.Errorf("the next call: %d %s", a.Status, a.Body)
			}
			g.charged(60, 1)
		})
	}
}

func TestTrailersOfTheClientCountNothing(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, strings.Replace(drainSite("2s", proxied), "{\n", "{\n\tservers {\n\t\tprotocols h1 h2c\n\t}\n", 1))
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	client := &http.Transport{Protocols: p}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.addr+"/v1/chat/completions", struct{ io.Reader }{strings.NewReader(chatBody)})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+keyA)
	req.Trailer = http.Header{
		"X-Prompt-Tokens": {"0"}, "X-Generated-Tokens": {"0"}, "X-Amzn-Bedrock-Input-Token-Count": {"0"},
		"X-Usage": {`{"usage":{"total_tokens":0}}`},
	}
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Errorf("got %s %d, %v", resp.Proto, resp.StatusCode, err)
	}
	g.charged(60, 1)
}

func TestTrailersOfTheUpstreamPass(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		sixtyTokens(w, r)
		w.Header().Set("X-Sum", "2")
	})
	g := start(t, up, strings.Replace(drainSite("2s", proxied), "{\n", "{\n\tservers {\n\t\tprotocols h1 h2c\n\t}\n", 1))
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	client := &http.Transport{Protocols: p}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.addr+"/v1/chat/completions", strings.NewReader(chatBody))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+keyA)
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Trailer.Get("X-Sum") != "2" {
		t.Errorf("trailer %v, %v", resp.Trailer, err)
	}
	g.charged(60, 1)
}
