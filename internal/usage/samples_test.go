package usage

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// sample is a recorded kind of response and what it has to be read as.
type sample struct {
	File     string
	Method   string
	Path     string `json:"request_path"`
	Status   int
	Type     string            `json:"content_type"`
	Headers  map[string]string `json:"response_headers"`
	Expected struct {
		Found, Complete, Error bool
		Model                  *string
		Pages                  int64
		CostUSD                json.Number `json:"cost_usd"`
		SearchUnits            int64       `json:"search_units"`
		Usage                  struct {
			Input, Output, Reasoning, Images, Total int64
			CacheRead                               int64 `json:"cache_read"`
			CacheWrite5m                            int64 `json:"cache_write_5m"`
			CacheWrite1h                            int64 `json:"cache_write_1h"`
			AudioIn                                 int64 `json:"audio_in"`
			AudioOut                                int64 `json:"audio_out"`
			ImageIn                                 int64 `json:"image_in"`
			ImageOut                                int64 `json:"image_out"`
			WebSearches                             int64 `json:"web_searches"`
			AudioSeconds                            int64 `json:"audio_seconds"`
		}
	}
	body []byte
}

// samples reads the manifest and the bodies beside it.
func samples(tb testing.TB) []sample {
	tb.Helper()
	dir := filepath.Join("testdata", "wire")
	raw, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var manifest struct{ Samples []sample }
	if err := json.Unmarshal(raw, &manifest); err != nil {
		tb.Fatal(err)
	}
	for i := range manifest.Samples {
		s := &manifest.Samples[i]
		if s.body, err = os.ReadFile(filepath.Join(dir, s.File)); err != nil {
			tb.Fatal(err)
		}
		if filepath.Ext(s.File) == ".hex" {
			if s.body, err = hex.DecodeString(string(bytes.Join(bytes.Fields(s.body), nil))); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return manifest.Samples
}

func (s *sample) header() http.Header {
	h := http.Header{"Content-Type": {s.Type}}
	for name, value := range s.Headers {
		h.Set(name, value)
	}
	return h
}

// report is the report that the manifest expects. It knows nothing of Delivered, counts
// other models with the call, and names the model of the path where the response names
// none.
func (s *sample) report() Report {
	u := s.Expected.Usage
	r := Report{
		Found: s.Expected.Found, Complete: s.Expected.Complete, Failed: s.Expected.Error,
		Usage: Usage{
			Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite5m: u.CacheWrite5m,
			CacheWrite1h: u.CacheWrite1h, Reasoning: u.Reasoning, AudioIn: u.AudioIn, AudioOut: u.AudioOut,
			ImageIn: u.ImageIn, ImageOut: u.ImageOut, Images: u.Images, WebSearches: u.WebSearches,
			AudioMillis: 1000 * u.AudioSeconds, Pages: s.Expected.Pages, SearchUnits: s.Expected.SearchUnits,
		},
	}
	r.TokensUnknown = r.Usage.Images > 0 && r.Usage.Total() == 0
	if s.Expected.Model != nil {
		r.Model = *s.Expected.Model
	}
	return r
}

// readAll reads a whole response in pieces of the given size, 0 for all at once.
func readAll(h http.Header, status int, body []byte, size int) Report {
	return readPieces(h, status, body, true, func(rest int) int {
		if size == 0 {
			return rest
		}
		return size
	})
}

// readPieces is readAnswer to no request that is known, without the number of pieces that
// text came in; that has tests of its own.
func readPieces(h http.Header, status int, body []byte, finished bool, cut func(rest int) int) Report {
	got := readAnswer(nil, h, status, body, finished, cut)
	got.Deltas = 0
	return got
}

// readAnswer reads the answer to q in pieces whose sizes cut decides. Each piece is
// handed over in memory that is overwritten afterwards.
func readAnswer(q *Request, h http.Header, status int, body []byte, finished bool, cut func(rest int) int) Report {
	r := NewResponse()
	defer r.Release()
	r.Expect(q)
	r.Start(status, h)
	for len(body) > 0 {
		piece := bytes.Clone(body[:min(max(1, cut(len(body))), len(body))])
		body = body[len(piece):]
		r.Write(piece)
		for i := range piece {
			piece[i] = '"'
		}
	}
	return r.Close(finished)
}

func TestSamplesAreReadAsExpected(t *testing.T) {
	for _, s := range samples(t) {
		for _, size := range []int{0, 1, 7, 1024} {
			t.Run(fmt.Sprintf("%s/%d", s.File, size), func(t *testing.T) {
				got := readAll(s.header(), s.Status, s.body, size)
				for _, other := range got.Other {
					got.Usage.add(other.Usage)
				}
				if s.Expected.CostUSD != "" {
					want, err := money.RoundUSD(s.Expected.CostUSD.String())
					if err != nil || !got.Terms.CostKnown || got.Terms.Cost != want {
						t.Errorf("got %+v, want %s", got.Terms, s.Expected.CostUSD)
					}
				}
				got.Other, got.Delivered, got.Terms, got.Usage.Grounded = nil, 0, Terms{}, 0
				if got.Model == "" {
					got.Model = identify(t, s.Method, s.Path, nil).Model
				}
				if want := s.report(); !reflect.DeepEqual(got, want) {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
				if total := s.Expected.Usage.Total; got.Usage.Total() != total {
					t.Errorf("got total %d, want %d", got.Usage.Total(), total)
				}
			})
		}
	}
}

func TestSamplesDoNotDependOnPieces(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.File, func(t *testing.T) {
			want := readAnswer(nil, s.header(), s.Status, s.body, true, func(rest int) int { return rest })
			rapid.Check(t, func(t *rapid.T) {
				sizes := rapid.SliceOfN(rapid.IntRange(1, 300), 1, 40).Draw(t, "sizes")
				i := 0
				got := readAnswer(nil, s.header(), s.Status, s.body, true, func(int) int {
					i++
					return sizes[i%len(sizes)]
				})
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("got  %+v\nwant %+v", got, want)
				}
			})
		})
	}
}
