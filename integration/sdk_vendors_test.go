package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// vendorClient is how the script vendors.mjs makes the client of a vendor.
type vendorClient struct {
	Vendor string `json:"vendor"`
	URL    string `json:"url"`
	Key    string `json:"key"`
	// Free has the client make the calls that cost no tokens, too.
	Free bool `json:"free,omitempty"`
	// Only names the one call to be made, as often as Times says.
	Only  string `json:"only,omitempty"`
	Times int    `json:"times,omitempty"`
	// Patient clients have the retries that they have by default; others have none,
	// but for those of Vercel's, which have as many as Retries says.
	Patient bool `json:"patient,omitempty"`
	Retries int  `json:"retries,omitempty"`
	// Within bounds each call, in milliseconds; one that takes longer fails as "late".
	Within int64 `json:"within,omitempty"`
	// Signed clients of AWS sign their requests, and send the key besides.
	Signed bool `json:"signed,omitempty"`
}

// vendorAttempt is how a call of the script ended.
type vendorAttempt struct {
	OK    json.RawMessage
	Error *struct {
		Class, Message, Text string
		Status               int
	}
}

// callVendors makes the calls of all clients, and returns them by client and name.
func callVendors(t *testing.T, clients map[string]vendorClient) map[string]map[string]vendorAttempt {
	t.Helper()
	arg, err := json.Marshal(clients)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]vendorAttempt
	runNode(t, &got, nil, []string{"vendors.mjs", string(arg)})
	return got
}

// vendors are the clients, the path at which the provider books what they use, and how
// many calls each makes.
var vendors = []struct {
	name, path string
	calls      int // that cost tokens
	free       int
}{
	{"google", "google", 7, 2},
	{"ollama", "ollama", 5, 2},
	{"mistral", "mistral", 6, 1},
	{"cohere", "cohere", 6, 1},
	{"bedrock", "bedrock", 5, 0},
	{"ai", "v1", 7, 0},
}

// vendorKeys are a key for each vendor, in the words of a Caddyfile and by vendor. The
// application of google is app-google.
func vendorKeys() (caddyfile string, byVendor map[string]string) {
	var b strings.Builder
	byVendor = make(map[string]string)
	for _, v := range vendors {
		key := "sk-test-of-" + v.name
		byVendor[v.name] = key
		fmt.Fprintf(&b, "\t\tkey %s %s {\n\t\t\tapplication app-%s\n\t\t}\n", v.name, keyHash(key), v.name)
	}
	return b.String(), byVendor
}

func TestVendorSDKsGetTheSameThroughTheGateway(t *testing.T) {
	t.Parallel()
	keys, issued := vendorKeys()
	s := startSDK(t, everyRule, keys)
	direct, through := make(map[string]vendorClient), make(map[string]vendorClient)
	for _, v := range vendors {
		direct[v.name] = vendorClient{Vendor: v.name, URL: "http://" + s.direct, Key: keyProvider, Free: true}
		through[v.name] = vendorClient{Vendor: v.name, URL: "http://" + s.addr, Key: issued[v.name], Free: true}
	}
	for _, clients := range []map[string]vendorClient{direct, through} {
		signed := clients["bedrock"]
		signed.Signed = true
		clients["bedrock, signed"] = signed
	}

	want := callVendors(t, direct)
	served := make(map[string]tokens)
	for _, v := range vendors {
		served[v.path] = s.provider.take(v.path)
	}
	got := callVendors(t, through)

	for client, calls := range want {
		if len(calls) != len(got[client]) {
			t.Errorf("%s: %d calls directly, %d through the gateway", client, len(calls), len(got[client]))
		}
		for name, call := range calls {
			t.Run(client+": "+name, func(t *testing.T) {
				if call.Error != nil || len(call.OK) == 0 {
					t.Fatalf("without the gateway: %+v", call.Error)
				}
				if !bytes.Equal(got[client][name].OK, call.OK) {
					t.Errorf("got  %s, %+v\nwant %s", got[client][name].OK, got[client][name].Error, call.OK)
				}
			})
		}
	}
	for _, v := range vendors {
		t.Run(v.name+" counted as served", func(t *testing.T) {
			if n := len(want[v.name]); n != v.calls+v.free {
				t.Errorf("%d calls, want %d", n, v.calls+v.free)
			}
			again := s.provider.take(v.path)
			if again != served[v.path] {
				t.Errorf("the provider served %+v, and %+v without the gateway", again, served[v.path])
			}
			s.charged(t, "app-"+v.name, again)
		})
	}
	t.Run("keys stay here", func(t *testing.T) { s.keyStays(t, slices.Collect(maps.Values(issued))...) })
}

// vendorErrors are the errors that the clients have for a status. Google's has others
// for interactions.
var vendorErrors = map[string]map[int]string{
	"interaction": {429: "RateLimitError", 401: "AuthenticationError", 403: "PermissionDeniedError"},

	"google":  {429: "ApiError", 401: "ApiError", 403: "ApiError"},
	"ollama":  {429: "ResponseError", 401: "ResponseError", 403: "ResponseError"},
	"mistral": {429: "SDKError", 401: "SDKError", 403: "SDKError"},
	"cohere":  {429: "TooManyRequestsError", 401: "UnauthorizedError", 403: "ForbiddenError"},
	"bedrock": {429: "ThrottlingException", 401: "AccessDeniedException", 403: "AccessDeniedException"},
	"ai":      {429: "APICallError", 401: "APICallError", 403: "APICallError"},
}

func TestVendorSDKsRaiseTheirErrors(t *testing.T) {
	t.Parallel()
	s := startSDK(t, "limit 1000 tokens per 3650d", "")
	if a := s.chat(keyA); a.Status != http.StatusOK {
		t.Fatalf("the call that uses up the limit: %d: %s", a.Status, a.Body)
	}
	before := s.up.calls()
	clients := make(map[string]vendorClient)
	for _, r := range refusals {
		for _, v := range vendors {
			clients[v.name+" "+r.name] = vendorClient{Vendor: v.name, URL: "http://" + s.addr, Key: r.key}
		}
	}
	clients["signed"] = vendorClient{Vendor: "bedrock", URL: "http://" + s.addr, Key: keyA, Signed: true}
	clients["retried"] = vendorClient{Vendor: "ai", URL: "http://" + s.addr, Key: keyA, Only: "chat", Retries: 1}
	got := callVendors(t, clients)

	check := func(t *testing.T, calls map[string]vendorAttempt, class string, status int, message string) {
		t.Helper()
		for name, call := range calls {
			class := class
			if strings.HasPrefix(name, "interaction") {
				class = vendorErrors["interaction"][status]
			}
			switch e := call.Error; {
			case e == nil:
				t.Errorf("%s: was let through: %s", name, call.OK)
			case e.Class != class || e.Status != status:
				t.Errorf("%s: %+v, want %s with status %d", name, *e, class, status)
			case !strings.Contains(e.Message, message) || strings.Contains(e.Text, "[object Object]"):
				t.Errorf("%s: message %q does not say %q", name, e.Message, message)
			}
		}
	}
	for _, r := range refusals {
		for _, v := range vendors {
			t.Run(v.name+" "+r.name, func(t *testing.T) {
				calls := got[v.name+" "+r.name]
				if len(calls) != v.calls {
					t.Errorf("%d calls, want %d", len(calls), v.calls)
				}
				check(t, calls, vendorErrors[v.name][r.want.status], r.want.status, r.want.message)
			})
		}
	}
	t.Run("signed requests over the limit", func(t *testing.T) {
		check(t, got["signed"], "ThrottlingException", 429, refusals[0].want.message)
	})
	t.Run("retried over the limit", func(t *testing.T) {
		check(t, got["retried"], "RetryError of 2: APICallError", 429, refusals[0].want.message)
	})
	if n := s.up.calls() - before; n != 0 {
		t.Errorf("%d calls that were refused reached the provider", n)
	}
}

// Google's, Mistral's and Ollama's clients have no retries by default.
func TestVendorSDKsWaitOutAShortLimit(t *testing.T) {
	t.Parallel()
	calls := map[string]string{"cohere": "chat", "bedrock": "converse", "ai": "chat"}
	const times = 2
	keys, issued := vendorKeys()
	s := startSDK(t, "limit 1 requests per 2s", keys)
	clients := make(map[string]vendorClient)
	for vendor, call := range calls {
		clients[vendor] = vendorClient{
			Vendor: vendor, URL: "http://" + s.addr, Key: issued[vendor], Only: call, Times: times, Patient: true,
		}
	}
	made := 0
	for vendor, ended := range callVendors(t, clients) {
		for name, a := range ended {
			made++
			if a.Error != nil {
				t.Errorf("%s, %s: %+v", vendor, name, *a.Error)
			}
		}
	}
	if n := s.up.calls(); n != made || made != times*len(calls) {
		t.Errorf("the provider was called %d times for %d calls, want %d", n, made, times*len(calls))
	}
}
