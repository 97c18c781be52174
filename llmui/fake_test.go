package llmui

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
)

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

// fakeRow is a row of GET /llm/usage.
type fakeRow struct {
	Instance    string     `json:"instance"`
	Rule        string     `json:"rule"`
	Consumer    string     `json:"consumer"`
	Model       string     `json:"model"`
	Unit        string     `json:"unit"`
	Limit       any        `json:"limit"`
	Used        any        `json:"used"`
	Reserved    any        `json:"reserved"`
	Remaining   any        `json:"remaining"`
	WindowStart *time.Time `json:"window_start"`
	ResetsAt    *time.Time `json:"resets_at"`
}

// fakeAdmin stands for Caddy's admin endpoint, with as much of it as the page asks for.
type fakeAdmin struct {
	mu       sync.Mutex
	rows     []fakeRow
	config   map[string]string // JSON, by @id
	metrics  string
	requests []string // method, path and body of what came
	header   http.Header
	page     int // consumers to a page; 0 for all
}

// startFake serves on a Unix socket, as the admin endpoint may.
func startFake(t testing.TB, f *fakeAdmin) *admin {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(f)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	a, err := newAdmin("unix/" + socket + "|0200")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (f *fakeAdmin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.requests = append(f.requests, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
	f.header = r.Header.Clone()
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	id, isID := strings.CutPrefix(r.URL.Path, "/id/")
	switch {
	case r.URL.Path == "/metrics":
		_, _ = io.WriteString(w, f.metrics)
	case r.URL.Path == "/llm/usage":
		f.usage(w, r, answer)
	case r.URL.Path == "/llm/limits":
		answer(200, map[string]any{"store": "memory", "limits": []any{}})
	case r.URL.Path == "/llm/overrides":
		answer(200, []any{})
	case isID && f.config[id] == "":
		answer(404, map[string]string{"error": "unknown object ID '" + id + "'"})
	case isID && r.Method == http.MethodGet:
		w.Header().Set("Etag", f.etag(id))
		answer(200, json.RawMessage(f.config[id]))
	case isID && r.Method == http.MethodPatch:
		if r.Header.Get("If-Match") != f.etag(id) {
			answer(412, map[string]string{"error": "If-Match header did not match current config hash"})
			return
		}
		if strings.Contains(string(body), `"amount":"many"`) {
			answer(400, map[string]string{"error": "loading new config: amount \"many\""})
			return
		}
		f.config[id] = string(body)
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeAdmin) etag(id string) string {
	return fmt.Sprintf(`"/config/%s %d"`, id, len(f.config[id]))
}

// usage answers with pages of so and so many consumers.
func (f *fakeAdmin) usage(w http.ResponseWriter, r *http.Request, answer func(int, any)) {
	rows := f.rows
	if c := r.URL.Query().Get("consumer"); c != "" {
		rows = slices.DeleteFunc(slices.Clone(rows), func(row fakeRow) bool { return row.Consumer != c })
	} else if f.page > 0 {
		from, _ := strconv.Atoi(r.URL.Query().Get("after"))
		to := min(from+f.page, len(rows))
		if to < len(rows) {
			w.Header().Set("Link", `</llm/usage?after=`+strconv.Itoa(to)+`>; rel="next"`)
		}
		rows = rows[from:to]
	}
	answer(200, append([]fakeRow{}, rows...))
}

// came are the requests since the last time.
func (f *fakeAdmin) came() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.requests
	f.requests = nil
	return all
}

// site is a server of the page for tests, as the command runs it.
type site struct {
	*server
	url string // of the server, without a path
}

func startSite(t testing.TB, f *fakeAdmin) *site {
	t.Helper()
	l, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(startFake(t, f), hostsOf(l.Addr()))
	ended := make(chan error)
	go func() { ended <- s.serve(t.Context(), l) }()
	t.Cleanup(func() { // the context has ended
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &site{server: s, url: "http://" + l.Addr().String()}
}
