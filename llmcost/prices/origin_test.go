package prices

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPricesComeFromFilesAndSafeURLs(t *testing.T) {
	tests := []struct {
		in, want string // want is how it is told; empty is refused
	}{
		{"/etc/prices.json", "/etc/prices.json"},
		{"prices.json", "prices.json"},
		{"https://example.com/p.json", "https://example.com/p.json"},
		{"https://user:secret@example.com/p.json?token=secret", "https://example.com/p.json"},
		{"http://localhost:8080/p.json", "http://localhost:8080/p.json"},
		{"http://127.0.0.1/p.json", "http://127.0.0.1/p.json"},
		{"http://[::1]:80/p.json", "http://[::1]:80/p.json"},
		{"http://example.com/p.json", ""},
		{"http://localhost.example.com/p.json", ""},
		{"http://10.0.0.1/p.json", ""},
		{"ftp://example.com/p.json", ""},
		{"file:///etc/prices.json", ""},
		{"https://", ""},
		{"https://exa mple.com/secret", ""},
		{"", ""},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			o, err := parseOrigin(tt.in)
			if tt.want == "" {
				if err == nil {
					t.Fatalf("accepted as %q", o)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("the error tells a secret: %v", err)
				}
				return
			}
			if err != nil || o.String() != tt.want {
				t.Errorf("got %q, %v, want %q", o, err, tt.want)
			}
		})
	}
}

func TestCopiesOfURLsThatDifferInTheirQueryAreKeptApart(t *testing.T) {
	a, errA := parseOrigin("https://example.com/p?a=1")
	b, errB := parseOrigin("https://example.com/p?a=2")
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if a.fileName() == b.fileName() || strings.ContainsAny(a.fileName(), `/\?`) {
		t.Errorf("file names %q and %q", a.fileName(), b.fileName())
	}
}

func TestAFetchIsLedToNoUnsafePlace(t *testing.T) {
	tests := []struct {
		name, to string
		tls      bool
	}{
		{"to a stranger in the clear", "http://192.0.2.1/p.json", false},
		{"from https to this machine in the clear", "http://127.0.0.1:9/p.json", true},
		{"to a file", "file:///etc/passwd", false},
		{"in circles", "/again", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			handler := http.RedirectHandler(tt.to, http.StatusFound)
			server := httptest.NewUnstartedServer(handler)
			if tt.tls {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			resp, err := strictClient(server.Client()).Get(server.URL)
			if err == nil {
				resp.Body.Close()
				t.Fatal("followed")
			}
			if !strings.Contains(err.Error(), "redirect") {
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
}
