package llmui

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

const (
	// adminPatience bounds a request to the admin endpoint. A config that is loaded may
	// take some seconds.
	adminPatience = 60 * time.Second
	// maxAnswer bounds what is read of an answer into memory, in bytes.
	maxAnswer = 64 << 20
)

// admin is Caddy's admin endpoint, over TCP or a Unix socket.
type admin struct {
	address string // as the operator wrote it
	base    string // what the endpoint expects to be called
	unix    bool
	client  *http.Client
}

// newAdmin returns the endpoint at an address in Caddy's notation, such as
// `localhost:2019` or `unix//run/caddy/admin.sock`. It dials nothing yet.
func newAdmin(address string) (*admin, error) {
	na, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return nil, fmt.Errorf("admin address %q: %w", address, err)
	}
	if na.PortRangeSize() > 1 || na.IsFdNetwork() {
		return nil, fmt.Errorf("admin address %q names no one socket to dial", address)
	}
	network, dial := na.Network, na.JoinHostPort(0)
	base := "http://" + dial
	if na.IsUnixNetwork() {
		// The socket's permissions may follow its path. The host is the one that Caddy's
		// own commands send.
		dial, _, _ = strings.Cut(na.Host, "|")
		base = "http://127.0.0.1"
	}
	return &admin{address: address, base: base, unix: na.IsUnixNetwork(), client: &http.Client{
		Timeout: adminPatience,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, dial)
			},
			// When a config is loaded the endpoint starts anew: a connection that was idle
			// might be closed under a request that cannot be repeated.
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// do sends a request; the path is escaped and has its query. An answer that is an error
// is no error here.
func (a *admin) do(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	if !a.unix {
		r.Header.Set("Origin", a.base) // it may be configured to want one
	}
	resp, err := a.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the admin endpoint at %s: %w", a.address, err)
	}
	return resp, nil
}

// read reads an answer to its end.
func read(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return body, err
}
