package apikeyauth

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Whatever becomes of a request, its key is in no log entry, no error, no header and
// no answer.
func TestNoKeyEverShows(t *testing.T) {
	const mark = "s3cr3t" // part of every key here
	var out strings.Builder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zapcore.DebugLevel)
	h, write, _ := fileHandler(t, file(entry("good", mark+"-good")), Key{ID: "late", Hash: hashOf(mark + "-late"), Expires: "2026-01-01"})
	h.Optional = &Anonymous{}
	h.Query = []string{"key"}
	h.Headers = defaultHeaders
	mustProvision(t, h)
	h.logger = zap.New(core)
	h.file = newKeysFile(h.KeysFile, nil, &h.index, h.logger)

	for _, target := range []string{"/v1/x", "/v1/x?key=" + mark + "-good", "/v1/x?key=" + mark + "-bad", "/v1/x?key=" + mark + "%20odd", "/v1/x?other=" + mark + "-good"} {
		for _, headers := range [][]string{
			nil,
			{"Authorization", "Bearer " + mark + "-good"},
			{"Authorization", "Basic " + mark},
			{"Proxy-Authorization", "Bearer " + mark},
			{"X-Api-Key", mark + "-late"},
			{"X-Api-Key", mark + "-unknown"},
			{"X-Goog-Api-Key", strings.Repeat(mark, 1000)},
			{"X-Api-Key", mark + "-good", "Api-Key", mark + "-late"},
		} {
			if headers == nil && strings.Contains(target, "other") {
				continue // without a presented key nothing tells that this is one
			}
			if len(headers) == 2 && headers[1] != "Bearer "+mark+"-good" && strings.Contains(target, "other") {
				continue // another key than the one presented
			}
			r := newRequest("POST", target, "", headers...)
			rec := httptest.NewRecorder()
			next := &upstream{err: fmt.Errorf("upstream is down")}
			if err := h.ServeHTTP(rec, r, next); err != nil {
				fmt.Fprintln(&out, err)
			}
			fmt.Fprintln(&out, rec.Header(), rec.Body, next.header, next.uri, next.target, next.vars, next.userID, r.Header, r.URL, r.RequestURI)
		}
	}
	for _, bad := range []string{
		`{"keys":[{"id":"a","hash":"` + mark + `"}]}`,
		`{"keys":[{"id":"a","hash":"` + mark,
		`{"keys":[{"id":"` + mark + `","hash":"` + hashOf(mark) + `"}]}`,
		`{"keys":{"` + mark + `":"a"}}`,
		`{"` + mark + `":[]}`,
		mark,
		file(entry("a", mark), entry("b", mark)),
	} {
		write(bad)
		h.file.reload()
	}
	if got := strings.Count(out.String(), "keys file is bad"); got != 7 {
		t.Errorf("%d bad files were logged", got)
	}
	if !strings.Contains(out.String(), "request refused") {
		t.Error("no refusal was logged")
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, mark) {
			t.Errorf("a key shows: %s", line)
		}
	}
}
