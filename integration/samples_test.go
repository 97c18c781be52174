package integration

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wireSample is an answer of a provider's and what a call that gets it has used.
type wireSample struct {
	File     string
	Method   string
	Path     string `json:"request_path"`
	Status   int
	Type     string            `json:"content_type"`
	Headers  map[string]string `json:"response_headers"`
	Expected struct {
		Found, Complete, Error bool
		Usage                  struct {
			Input, Output, Images int64
			CacheRead             int64 `json:"cache_read"`
		}
	}

	body    []byte
	request []byte // JSON; nil where none is sent
}

// wireSamples reads the samples of the package that knows the formats, and the
// requests that get them.
func wireSamples(t *testing.T) []*wireSample {
	t.Helper()
	dir := filepath.Join("..", "internal", "usage", "testdata", "wire")
	var manifest struct{ Samples []*wireSample }
	var requests map[string]json.RawMessage
	for name, into := range map[string]any{
		filepath.Join(dir, "manifest.json"):               &manifest,
		filepath.Join("testdata", "sample_requests.json"): &requests,
	} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, s := range manifest.Samples {
		var err error
		if s.body, err = os.ReadFile(filepath.Join(dir, s.File)); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(s.File) == ".hex" {
			if s.body, err = hex.DecodeString(string(bytes.Join(bytes.Fields(s.body), nil))); err != nil {
				t.Fatalf("%s: %v", s.File, err)
			}
		}
		s.request = requests[s.File]
		if s.request == nil && s.Method == http.MethodPost {
			t.Fatalf("%s: there is no request", s.File)
		}
	}
	return manifest.Samples
}

// form is the request as SDKs send recordings and pictures.
func (s *wireSample) form(t *testing.T) (contentType string, body []byte) {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(s.request, &members); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if err := w.WriteField(name, fmt.Sprint(members[name])); err != nil {
			t.Fatal(err)
		}
	}
	file, err := w.CreateFormFile("file", "file.bin")
	if err != nil {
		t.Fatal(err)
	}
	file.Write([]byte("\x00\x01\x02\x03"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.Bytes()
}

// sampleCase is a sample on its way through the gateway, in pieces of a size.
type sampleCase struct {
	*wireSample
	name    string // what it is counted under
	size    int    // of the pieces, in bytes; 0 for the whole
	request []byte
	kind    string // of the request
	unasked bool   // the client does not ask for usage in its stream, so that we do
}

// sampleCases are all samples in pieces of all sizes; and the streams with usage that
// was asked for once more, where the client does not ask.
func sampleCases(t *testing.T) []*sampleCase {
	t.Helper()
	const asking = `"stream_options": {"include_usage": true}`
	var cases []*sampleCase
	for _, s := range wireSamples(t) {
		base := sampleCase{wireSample: s, request: s.request, kind: "application/json"}
		asks := strings.Contains(string(s.request), asking)
		base.unasked = strings.Contains(s.Path, "/completions") && strings.Contains(string(s.request), `"stream": true`) && !asks
		if strings.HasSuffix(s.Path, "/audio/transcriptions") || strings.HasSuffix(s.Path, "/images/edits") {
			base.kind, base.request = s.form(t)
		}
		for _, size := range []int{0, 1, 7, 1024} {
			if size > 0 && size < 1024 && len(s.body) > 64<<10 {
				continue // a million writes show no more than the small samples do
			}
			c := base
			c.size, c.name = size, s.File+"/"+strconv.Itoa(size)
			cases = append(cases, &c)
			if asks {
				unasked := c
				unasked.unasked, unasked.name = true, c.name+"/unasked"
				unasked.request = []byte(strings.Replace(string(s.request), ", "+asking, "", 1))
				cases = append(cases, &unasked)
			}
		}
	}
	return cases
}

// serveSamples is the provider: it answers with the sample that the call names.
func serveSamples(t *testing.T, cases map[string]*sampleCase) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := cases[r.Header.Get("X-Case")]
		if c == nil {
			http.NotFound(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%s: reading the request: %v", c.name, err)
		}
		if r.Method != c.Method || r.RequestURI != c.Path {
			t.Errorf("%s: the provider is called by %s %s", c.name, r.Method, r.RequestURI)
		}
		want := string(c.request)
		if c.unasked && r.Header.Get("X-Plain") == "" {
			want = `{"stream_options":{"include_usage":true},` + want[1:]
		}
		if string(body) != want {
			t.Errorf("%s: the provider is sent %q, want %q", c.name, body, want)
		}

		for name, value := range c.Headers {
			w.Header().Set(name, value)
		}
		w.Header().Set("Content-Type", c.Type)
		w.WriteHeader(c.Status)
		rc := http.NewResponseController(w)
		for rest := c.body; len(rest) > 0; {
			n := len(rest)
			if c.size > 0 {
				n = min(n, c.size)
			}
			w.Write(rest[:n])
			rest = rest[n:]
			if c.size > 0 {
				if err := rc.Flush(); err != nil {
					t.Errorf("%s: %v", c.name, err)
					return
				}
			}
		}
	}
}

// wireAnswer is what a client gets.
type wireAnswer struct {
	status  int
	header  http.Header
	length  int64
	coding  []string
	trailer http.Header
	body    []byte
}

// ask sends the case's request; plain goes past the limiter.
func (c *sampleCase) ask(t *testing.T, g *gateway, client *http.Client, plain bool) wireAnswer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.Method, "http://"+g.addr+c.Path, bytes.NewReader(c.request))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Case", c.name)
	req.Header.Set("Accept-Encoding", "gzip")
	if c.request != nil {
		req.Header.Set("Content-Type", c.kind)
	}
	if plain {
		req.Header.Set("X-Plain", "yes")
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return wireAnswer{resp.StatusCode, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Trailer, body}
}

// limitFields are the header fields that tell of limits. What the provider says in them
// is about the operator's account, and is replaced.
func limitFields(name string, _ []string) bool {
	return name == "Date" || name == "Ratelimit" || strings.HasPrefix(name, "Ratelimit-") ||
		strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-")
}

// withoutUsage is a stream without the events that have usage and no choices.
func withoutUsage(t *testing.T, stream []byte) string {
	t.Helper()
	var kept strings.Builder
	end := "\n\n"
	if bytes.Contains(stream, []byte("\r\n")) {
		end = "\r\n\r\n"
	}
	for event := range strings.SplitAfterSeq(string(stream), end) {
		var chunk struct {
			Choices []any
			Usage   any
		}
		data, isData := strings.CutPrefix(strings.TrimSpace(event), "data: {")
		if isData {
			if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
				t.Fatal(err)
			}
		}
		if !isData || len(chunk.Choices) > 0 || chunk.Usage == nil {
			kept.WriteString(event)
		}
	}
	return kept.String()
}

// sameAs tells what differs between an answer through the limiter and one past it.
func (c *sampleCase) sameAs(t *testing.T, got, plain wireAnswer) {
	t.Helper()
	if got.status != plain.status || got.status != c.Status {
		t.Errorf("status %d, want %d", got.status, c.Status)
	}
	want := string(c.body)
	if string(plain.body) != want {
		t.Fatalf("past the limiter, the answer is %d bytes of %d", len(plain.body), len(want))
	}
	if c.unasked && strings.HasPrefix(c.Type, "text/event-stream") {
		want = withoutUsage(t, c.body)
		delete(plain.header, "Content-Length") // the length of what is left is not known beforehand
		plain.length, plain.coding = got.length, got.coding
	}
	if string(got.body) != want {
		t.Errorf("got  %q\nwant %q", got.body, want)
	}
	if got.length != plain.length || !slices.Equal(got.coding, plain.coding) || len(got.trailer) > 0 {
		t.Errorf("length %d, coding %q, trailers %v; want %d, %q, none", got.length, got.coding, got.trailer, plain.length, plain.coding)
	}
	if got.header.Get("X-Ratelimit-Limit") == "" {
		t.Error("the answer does not tell what is left")
	}
	maps.DeleteFunc(got.header, limitFields)
	maps.DeleteFunc(plain.header, limitFields)
	if !maps.EqualFunc(got.header, plain.header, slices.Equal) {
		t.Errorf("got the header %v\nwant %v", got.header, plain.header)
	}
}

// sampleUnits are the units that the limiter of these tests counts.
var sampleUnits = []string{"requests", "tokens", "input_tokens", "output_tokens", "uncached_tokens"}

// counted is what a case is charged, by unit, once it is settled: the last bytes reach the
// client before that.
func counted(t *testing.T, g *gateway, name string) map[string]int64 {
	t.Helper()
	q := url.Values{"instance": {g.testName()}, "consumer": {name}}
	var rows []row
	var used map[string]int64
	held := int64(0)
	atRest(func() bool {
		rows = nil
		g.adminGet("/llm/usage?"+q.Encode(), &rows)
		used, held = make(map[string]int64), 0
		for _, r := range rows {
			used[r.Unit] += r.Used
			held += r.Reserved
		}
		return held == 0
	})
	if held != 0 {
		t.Fatalf("the call is not settled: %+v", rows)
	}
	return used
}

// charge is what a case has to cost, by unit.
func (c *sampleCase) charge(t *testing.T, used map[string]int64) map[string]int64 {
	t.Helper()
	u := c.Expected.Usage
	want := map[string]int64{"requests": 1}
	switch {
	case c.Method == http.MethodGet: // whatever it reports, it used nothing
	case c.Expected.Found && (u.Images == 0 || u.Input+u.Output > 0):
		want["tokens"], want["input_tokens"], want["output_tokens"] = u.Input+u.Output, u.Input, u.Output
		want["uncached_tokens"] = u.Input + u.Output - u.CacheRead
	case c.Expected.Error:
	case strings.HasSuffix(c.Path, "/moderations"), strings.HasSuffix(c.Path, "tokens"): // free
	default:
		// An estimate, also of pictures whose tokens are not told: of the prompt, no more
		// than a token for each byte of the request, and of the output the cap, or what is
		// expected of an unknown model, of its pictures and of its speech.
		in := used["input_tokens"]
		if in < 1 || in > int64(len(c.request)) {
			t.Errorf("%d tokens of input are no estimate of a request of %d bytes", in, len(c.request))
		}
		var request struct {
			Cap int64 `json:"max_completion_tokens"`
		}
		if err := json.Unmarshal(c.request, &request); err != nil {
			t.Fatal(err)
		}
		out := int64(1024)
		switch {
		case request.Cap > 0:
			out = request.Cap
		case u.Images > 0:
			out = u.Images * 1040 // of 512×512 each, at the quality of high
		case strings.HasSuffix(c.Path, "/audio/speech"):
			out = 64 // the least
		}
		want["tokens"], want["input_tokens"], want["output_tokens"], want["uncached_tokens"] = in+out, in, out, in+out
	}
	return want
}

func TestSamplesPassUnchangedAndAreCounted(t *testing.T) {
	list := sampleCases(t)
	cases := make(map[string]*sampleCase)
	for _, c := range list {
		cases[c.name] = c
	}
	up := newUpstream(t, serveSamples(t, cases))
	g := start(t, up, `{site} {
	@plain header X-Plain *
	handle @plain {
		reverse_proxy {upstream}
	}
	handle {
		token_limit {name} {
			key {header.X-Case}
			limit 1k requests per day
			limit 1G tokens per day
			limit 1G input_tokens per day
			limit 1G output_tokens per day
			limit 1G uncached_tokens per day
			unmetered allow
		}
		reverse_proxy {upstream}
	}
}`)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)

	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			plain := c.ask(t, g, client, true)
			c.sameAs(t, c.ask(t, g, client, false), plain)
			used := counted(t, g, c.name)
			want := c.charge(t, used)
			for _, unit := range sampleUnits {
				if used[unit] != want[unit] {
					t.Errorf("%d %s are charged, want %d", used[unit], unit, want[unit])
				}
			}
		})
	}
}
