package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

const strictKeys = `{site} {
	api_key_auth {
		key a {hash-a} {
			application app-a
		}
		key b {hash-b} {
			application app-b
			models gpt-4o* claude-*
		}
		key n {hash-c} {
			application app-c
			models none
		}
	}
	token_limit {name} {
		consumer_based
		limit 100k tokens per hour
	}
	reverse_proxy {upstream}
}`

func strictSite() string {
	return strings.NewReplacer("{hash-a}", hashOf(keyA), "{hash-b}", hashOf(keyB), "{hash-c}", hashOf(keyUnbound)).Replace(strictKeys)
}

func TestBadInputHasAnAnswerAndCostsNothing(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, "{\n\tllm {\n\t\tmeter {\n\t\t\tmax_body 4KiB\n\t\t}\n\t}\n}\n"+strictSite())
	const path = "/v1/chat/completions"
	for _, tt := range []struct {
		name, key, path, body string
		header                []string
		status                int
		code                  string
	}{
		{"no JSON", keyA, path, `hello`, nil, 400, "invalid_request"},
		{"JSON that is no object", keyA, path, `[1]`, nil, 400, "invalid_request"},
		{"bytes behind the JSON", keyA, path, `{"model":"gpt-4o"} {}`, nil, 400, "invalid_request"},
		{"empty", keyA, path, ``, nil, 400, "invalid_request"},
		{"too large", keyA, path, `{"model":"` + strings.Repeat("x", 5000) + `"}`, nil, 413, "request_body_too_large"},
		{"model twice", keyA, path, `{"model":"gpt-4o","model":"o1"}`, nil, 400, "invalid_request"},
		{"model in another case", keyA, path, `{"model":"gpt-4o","Model":"o1"}`, nil, 400, "invalid_request"},
		{"model escaped", keyA, path, `{"model":"gpt-4o","mod\u0065l":"o1"}`, nil, 400, "invalid_request"},
		{"stream twice", keyA, path, `{"stream":true,"stream":false}`, nil, 400, "invalid_request"},
		{"n twice", keyA, path, `{"n":1,"n":100}`, nil, 400, "invalid_request"},
		{"cap twice", keyA, path, `{"max_tokens":1,"MAX_TOKENS":100}`, nil, 400, "invalid_request"},
		{"encoding unknown", keyA, path, `{"model":"gpt-4o"}`, []string{"Content-Encoding", "rot13"}, 415, "unsupported_content_encoding"},
		{"encoding false", keyA, path, `{"model":"gpt-4o"}`, []string{"Content-Encoding", "gzip"}, 400, "invalid_request"},
		{"no key", "", path, `{"model":"gpt-4o"}`, nil, 401, "invalid_api_key"},
		{"wrong key", "sk-wrong", path, `{"model":"gpt-4o"}`, nil, 401, "invalid_api_key"},
		{"two keys", keyA, path, `{"model":"gpt-4o"}`, []string{"X-Api-Key", keyB}, 401, "invalid_api_key"},
		{"model not in the list", keyB, path, `{"model":"o1"}`, nil, 403, "model_not_allowed"},
		{"no model under a list", keyB, path, `{"messages":[]}`, nil, 403, "model_not_allowed"},
		{"model in the body against the path", keyB, "/openai/deployments/gpt-4o/chat/completions", `{"model":"o1"}`, nil, 403, "model_not_allowed"},
		{"model in the path against the body", keyB, "/openai/deployments/o1/chat/completions", `{"model":"gpt-4o"}`, nil, 403, "model_not_allowed"},
		{"no model allowed", keyUnbound, path, `{"model":"gpt-4o"}`, nil, 403, "model_not_allowed"},
		{"batch", keyA, "/v1/batches", `{"input_file_id":"f"}`, nil, 403, "endpoint_not_metered"},
		{"background", keyA, "/v1/responses", `{"model":"gpt-4o","input":"x","background":true}`, nil, 403, "endpoint_not_metered"},
		{"fine-tuning", keyA, "/v1/fine_tuning/jobs", `{"model":"gpt-4o"}`, nil, 403, "endpoint_not_metered"},
		{"credentials", keyA, "/v1/realtime/client_secrets", `{}`, nil, 403, "endpoint_not_metered"},
		{"credentials, disguised", keyA, "/v1//realtime/Client_Secrets/", `{}`, nil, 403, "endpoint_not_metered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := g.call("POST", tt.path, tt.key, tt.body, tt.header...)
			if a.Status != tt.status {
				t.Fatalf("status %d, want %d: %s", a.Status, tt.status, a.Body)
			}
			var e struct {
				Error struct{ Code, Type, Message string }
			}
			if err := json.Unmarshal([]byte(a.Body), &e); err != nil || e.Error.Code != tt.code || e.Error.Type == "" || e.Error.Message == "" {
				t.Errorf("body %s, want code %s", a.Body, tt.code)
			}
			if a.Status == http.StatusUnauthorized && a.Header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
			for _, key := range []string{keyA, keyB, keyUnbound} {
				if strings.Contains(a.Body, key) {
					t.Error("the answer holds a key")
				}
			}
		})
	}
	if n := up.calls(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
	if u := g.used("", "app-a", "tokens per hour"); u.Used != 0 || u.Reserved != 0 {
		t.Errorf("refusals cost %d tokens, %d reserved", u.Used, u.Reserved)
	}
}

// What was checked is what goes on: an upstream that ignores Content-Encoding must not
// read another request.
func TestCompressedRequestIsReadAndPassedOnPlain(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, strictSite())
	pack := func(body string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(body))
		z.Close()
		return b.String()
	}
	const body = `{"model":"claude-haiku-4-5","max_tokens":5,"messages":[]}`
	if a := g.call("POST", "/v1/messages", keyB, pack(body), "Content-Encoding", "gzip"); a.Status != http.StatusOK {
		t.Fatalf("%d: %s", a.Status, a.Body)
	}
	if got := up.last(); got.Body != body || got.Header.Get("Content-Encoding") != "" {
		t.Errorf("the upstream got %q, encoded as %q", got.Body, got.Header.Get("Content-Encoding"))
	}
	if a := g.call("POST", "/v1/messages", keyB, pack(`{"model":"o1","max_tokens":5,"messages":[]}`), "Content-Encoding", "gzip"); a.Status != http.StatusForbidden {
		t.Errorf("a model outside of the list, compressed: %d", a.Status)
	}
}

func TestConfigErrorsNameLineWordAndRule(t *testing.T) {
	g := start(t, nil, "{site} {\n\trespond ok\n}")
	line := strings.Count(g.global()+"}\n{site} {\n", "\n") + 1 // of the site's first directive
	for _, tt := range []struct{ name, site, want string }{
		{"unknown word", "token_limit {\n\tlimit 5 tokens per hour\n\tspeed 5\n}", "unrecognized subdirective 'speed', at Caddyfile:" + strconv.Itoa(line+2)},
		{"unknown unit", "token_limit {\n\tlimit 5 bananas per hour\n}", "bananas"},
		{"zero", "token_limit {\n\tlimit 0 tokens per hour\n}", "must be greater than zero"},
		{"application called default", "api_key_auth {\n\tkey a " + hashOf(keyA) + " {\n\t\tapplication default\n\t}\n}", "default"},
		{"empty list of models", "api_key_auth {\n\tkey a " + hashOf(keyA) + " {\n\t\tmodels\n\t}\n}", "models"},
		{"name like a path", "token_limit @x {\n\tlimit 5 tokens per hour\n}", "@x"},
		{"equal unnamed instances", "route {\n\ttoken_limit {\n\t\tlimit 5 tokens per hour\n\t}\n\ttoken_limit {\n\t\tlimit 6 requests per hour\n\t}\n}", "give each a name"},
		{"limiter behind the upstream", "route {\n\treverse_proxy 127.0.0.1:1\n\ttoken_limit {name} {\n\t\tlimit 5 tokens per hour\n\t}\n}", "behind reverse_proxy"},
		{"consumer limiter before authentication", "route {\n\ttoken_limit {name} {\n\t\tconsumer_based\n\t\tlimit 5 tokens per hour\n\t}\n\tapi_key_auth {\n\t\tkey a " + hashOf(keyA) + "\n\t}\n}", "before api_key_auth"},
		{"unknown placeholder", "token_limit {name} {\n\tkey {http.reqest.header.X-Team}\n\tlimit 5 tokens per hour\n}", "http.reqest.header.X-Team"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := g.tryLoad(nil, "{site} {\n"+tt.site+"\n}")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), keyA) {
				t.Error("the error holds a key")
			}
		})
	}
}
