package apikeyauth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// adminManager manages the keys of a running Caddy.
type adminManager struct{ address string }

func (m *adminManager) issue(req *keyRequest) (key issued, err error) {
	_, err = m.ask(http.MethodPost, keysPath, req, &key)
	return key, err
}

func (m *adminManager) list() ([]keyRow, error) {
	all := []keyRow{}
	for next := keysPath; next != ""; {
		var page []keyRow
		header, err := m.ask(http.MethodGet, next, nil, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next = nextPage(header.Get("Link"))
	}
	return all, nil
}

// nextPage is where a Link field leads, empty if it does not.
func nextPage(link string) string {
	link, ok := strings.CutSuffix(link, `>; rel="next"`)
	if !ok || !strings.HasPrefix(link, "<"+keysPath) {
		return ""
	}
	return link[1:]
}

func (m *adminManager) rotate(id, grace, end string) (key issued, err error) {
	_, err = m.ask(http.MethodPost, keysPath+"/"+url.PathEscape(id)+"/rotate", rotateRequest{&grace, end}, &key)
	return key, err
}

func (m *adminManager) enable(id string, on bool) error {
	_, err := m.ask(http.MethodPatch, keysPath+"/"+url.PathEscape(id), enableRequest{&on}, nil)
	return err
}

func (m *adminManager) revoke(id string) error {
	_, err := m.ask(http.MethodDelete, keysPath+"/"+url.PathEscape(id), nil, nil)
	return err
}

// ask asks the admin endpoint.
func (m *adminManager) ask(method, uri string, body, into any) (http.Header, error) {
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(data)
	}
	resp, err := caddycmd.AdminAPIRequest(m.address, method, uri, nil, send)
	if err != nil {
		return nil, fmt.Errorf("asking the Caddy at %s: %w", m.address, err)
	}
	defer resp.Body.Close()
	if into == nil {
		return resp.Header, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return nil, errors.New("reading the answer: it is not of the form that this version knows")
	}
	return resp.Header, nil
}
