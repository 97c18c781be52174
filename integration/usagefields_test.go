package integration

import (
	"io"
	"net/http"
	"testing"
)

// The invented API counts in its own words, cumulatively where it streams, and by step.
const (
	inventedAsk    = `{"engine":"house-1","question":"How deep is the harbour?"}`
	inventedAnswer = `{"answer":"Nine fathoms.","meta":{"read":31},"steps":[{"written":8},{"written":"3"},{"note":"none"}]}`
	inventedStream = `data: {"answer":"Nine "}` + "\n\n" +
		`data: {"answer":"fathoms","meta":{"read":31},"steps":[{"written":8}]}` + "\n\n" +
		`data: {"answer":".","meta":{"read":null},"steps":[{"written":8},{"written":3.0}]}` + "\n\n" +
		"data: end\n\n"
	inventedLines = `{"answer":"Nine "}` + "\n" + `{"answer":"fathoms."}` + "\n" + `{"meta":{"read":31},"steps":[{"written":11}]}` + "\n"
)

func TestUsageFieldsCountAnInventedAPI(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		kind, body := "application/json", inventedAnswer
		switch r.URL.Path {
		case "/stream":
			kind, body = "text/event-stream", inventedStream
		case "/lines":
			kind, body = "application/x-ndjson", inventedLines
		case "/silent":
			body = `{"answer":"Nine fathoms."}`
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		rc := http.NewResponseController(w)
		for len(body) > 0 {
			n := min(9, len(body))
			io.WriteString(w, body[:n])
			body = body[n:]
			rc.Flush()
		}
	})
	g := start(t, up, `{site} {
		token_limit {name} {
			key {header.X-Case}
			limit 100k tokens per hour
			usage_fields meta.read steps.#.written
		}
		reverse_proxy {upstream}
	}`)
	for _, tc := range []struct {
		path, body string
		status     int
		least      int64
		most       int64
	}{
		{"/answer", inventedAnswer, 200, 42, 42},
		{"/stream", inventedStream, 200, 42, 42},
		{"/lines", inventedLines, 200, 42, 42},
		{"/silent", `{"answer":"Nine fathoms."}`, 200, 1024 + 1, 1024 + int64(len(inventedAsk))}, // an estimate
		{"/broken", "", 500, 0, 0},
	} {
		t.Run(tc.path, func(t *testing.T) {
			a := g.call("POST", tc.path, "", inventedAsk, "X-Case", tc.path)
			if a.Status != tc.status || a.Body != tc.body {
				t.Errorf("got %d %q", a.Status, a.Body)
			}
			if up.last().Body != inventedAsk {
				t.Errorf("the request was changed: %s", up.last().Body)
			}
			if used := counted(t, g, tc.path)["tokens"]; used < tc.least || used > tc.most {
				t.Errorf("%d tokens are charged, want %d to %d", used, tc.least, tc.most)
			}
		})
	}
}

func TestUsageFieldsThatCannotBeFollowedAreRefusedAtLoad(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, consumerLimit)
	err := g.tryLoad(up, `{site} {
		token_limit {name} {
			limit 100k tokens per hour
			usage_fields usage.*
		}
		reverse_proxy {upstream}
	}`)
	if err == nil {
		t.Fatal("the config is accepted")
	}
	if got := g.chat(keyA); got.Status != http.StatusOK {
		t.Errorf("the config before it answers %d", got.Status)
	}
}
