package prices

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
)

// origin is where a source of prices is read from: a file or an URL.
type origin struct {
	path string   // of a file
	url  *url.URL // nil of a file
}

// parseOrigin reads what an operator wrote. Prices decide what is billed, so that they
// are fetched over https; over http from this machine only.
func parseOrigin(s string) (origin, error) {
	if s == "" {
		return origin{}, errors.New("prices of nowhere: name a file or an https URL")
	}
	if !strings.Contains(s, "://") {
		return origin{path: s}, nil
	}
	u, err := url.Parse(s)
	if err != nil { // whose text has all of the URL, and maybe a secret
		return origin{}, errors.New("prices: not an URL that can be read")
	}
	o := origin{url: u}
	if u.Host == "" || !allowed(u) {
		return origin{}, fmt.Errorf("prices %q: only https, or http to this machine", o)
	}
	return o, nil
}

// allowed reports whether prices may be fetched from an URL.
func allowed(u *url.URL) bool {
	switch u.Scheme {
	case "https":
		return true
	case "http":
		host := u.Hostname()
		ip := net.ParseIP(host)
		return host == "localhost" || ip != nil && ip.IsLoopback()
	default:
		return false
	}
}

// String is the place without what may be secret of it: user, password and query.
func (o origin) String() string {
	if o.url == nil {
		return o.path
	}
	plain := url.URL{Scheme: o.url.Scheme, Host: o.url.Host, Path: o.url.Path}
	return plain.String()
}

// fileName is what the last good copy is kept as.
func (o origin) fileName() string {
	var place string
	if o.url != nil {
		place = o.url.String()
	} else if absolute, err := filepath.Abs(o.path); err == nil {
		place = absolute
	} else {
		place = o.path
	}
	sum := sha256.Sum256([]byte(place))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// maxRedirects of one fetch.
const maxRedirects = 5

// strictClient is a copy of a client that is led to no place where prices may not be
// fetched from, and never from https to http.
func strictClient(c *http.Client) *http.Client {
	strict := &http.Client{}
	if c != nil {
		*strict = *c
	}
	strict.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return errors.New("too many redirects")
		}
		if !allowed(req.URL) || via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return errors.New("redirected to a place that prices are not fetched from")
		}
		return nil
	}
	return strict
}
