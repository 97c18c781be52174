package usage

import (
	"net/http"
	"reflect"
	"testing"
)

func TestOddPathsAreNeverFree(t *testing.T) {
	tests := []struct {
		name, method, target string
		api                  API
		class                Class
	}{
		{"a question mark", "POST", "/v1/files%3F", UnknownAPI, Spending},
		{"a question mark within an id", "POST", "/v1/vector_stores/a%3Fb/search", UnknownAPI, Spending},
		{"a question mark escaped twice", "POST", "/v1/files/chat%253Fx/../../files%253F", UnknownAPI, Spending},
		{"a number sign", "POST", "/v1/tokenize%23", UnknownAPI, Spending},
		{"a number sign in an id", "POST", "/v1/threads/%23x", UnknownAPI, Spending},
		{"a line feed at the end", "POST", "/v1/files%0A", UnknownAPI, Spending},
		{"a tab in an id", "POST", "/v1/assistants/a%09b", UnknownAPI, Spending},
		{"a NUL", "POST", "/v1/assistants/%00", UnknownAPI, Spending},
		{"a control character beyond ASCII", "POST", "/v1/assistants/%C2%85", UnknownAPI, Spending},
		{"escapes left", "POST", "/v1/assistants/%2525252525253F", UnknownAPI, Spending},
		{"an escape that cannot be undone", "POST", "/v1/assistants/%25zz%253F", UnknownAPI, Spending},
		{"a GET", "GET", "/v1/files/a%3Fb", UnknownAPI, Spending},
		{"a GET of a line feed", "GET", "/v1/models/a%0D%0Ab", UnknownAPI, Spending},
		{"a HEAD", "HEAD", "/v1/models%23", UnknownAPI, Spending},
		{"chat behind a question mark", "POST", "/v1/x%3F/chat/completions", OpenAIChat, Spending},
		{"minting before a question mark", "POST", "/v1/realtime/client_secrets%3Fx", UnknownAPI, Minting},
		{"minting before a question mark, escaped twice", "GET", "/v1/organization/admin_api_keys%253F/v1/files", UnknownAPI, Minting},
		{"batches before a number sign", "POST", "/v1/batches%23", UnknownAPI, Unmetered},
		{"a space is usual", "GET", "/v1/files/a%20b", UnknownAPI, Free},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := identify(t, tt.method, tt.target, nil)
			if got.Class != tt.class || got.API != tt.api {
				t.Errorf("Identify(%s %s) = %v %v, want %v %v", tt.method, tt.target, got.API, got.Class, tt.api, tt.class)
			}
		})
	}
}

func TestMethodOverridesAreTakenForPosts(t *testing.T) {
	tests := []struct {
		method, target string
		api            API
		class          Class
	}{
		{"GET", "/v1/chat/completions", OpenAIChat, Spending},
		{"DELETE", "/v1/chat/completions", OpenAIChat, Spending},
		{"HEAD", "/v1/responses", OpenAIResponses, Spending},
		{"OPTIONS", "/v1/batches", UnknownAPI, Unmetered},
		{"OPTIONS", "/v1/realtime/client_secrets", UnknownAPI, Minting},
		{"GET", "/v1/anything", UnknownAPI, Spending},
		{"GET", "/v1/files", UnknownAPI, Free},
	}
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		h := http.Header{}
		h.Set(name, "")
		for _, tt := range tests {
			if got := identify(t, tt.method, tt.target, h); got.Class != tt.class || got.API != tt.api {
				t.Errorf("%s: %s %s is %v %v, want %v %v", name, tt.method, tt.target, got.API, got.Class, tt.api, tt.class)
			}
		}
		StripMethodOverride(h)
		if got := identify(t, "GET", "/v1/chat/completions", h); len(h) > 0 || got.Class != Free {
			t.Errorf("%s: got %v, %v left", name, got.Class, h)
		}
	}
}

func TestStripUpgradeKeepsWhatElseConnectionNames(t *testing.T) {
	tests := []struct {
		name     string
		in, want http.Header
	}{
		{"nothing", http.Header{"A": {"b"}}, http.Header{"A": {"b"}}},
		{
			"h2c",
			http.Header{"Upgrade": {"h2c"}, "Http2-Settings": {"AAMAAABk"}, "Connection": {"Upgrade, HTTP2-Settings"}},
			http.Header{},
		},
		{
			"other names",
			http.Header{"Upgrade": {"h2c"}, "Connection": {"keep-alive, uPgRaDe", " X-A ,http2-settings,", "close"}},
			http.Header{"Connection": {"keep-alive, X-A, close"}},
		},
		{"an upgrade that is not named", http.Header{"Upgrade": {"websocket"}}, http.Header{}},
		{"a name without an upgrade", http.Header{"Connection": {"upgrade"}}, http.Header{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if StripUpgrade(tt.in); !reflect.DeepEqual(tt.in, tt.want) {
				t.Errorf("got %v, want %v", tt.in, tt.want)
			}
		})
	}
}

func TestRequestEncodingJoinsLines(t *testing.T) {
	for want, lines := range map[string][]string{"": nil, "gzip": {"gzip"}, "identity,gzip": {"identity", "gzip"}, ",br": {"", "br"}} {
		if got := RequestEncoding(http.Header{"Content-Encoding": lines}); got != want {
			t.Errorf("%q: got %q, want %q", lines, got, want)
		}
	}
}
