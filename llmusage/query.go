package llmusage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// query is what is asked of the admin endpoint.
type query struct {
	address            string // of the endpoint, as Caddy's own commands have it
	instance, consumer string // empty for all
}

// counter is a row of GET /llm/usage.
type counter struct {
	Instance string `json:"instance"`
	Rule     string `json:"rule"`
	Consumer string `json:"consumer"` // empty for a counter that all share
	Model    string `json:"model"`
	Unit     string `json:"unit"`
	// A json.Number reads the decimal strings of dollars, too.
	Limit     json.Number `json:"limit"`
	Used      json.Number `json:"used"`
	Reserved  json.Number `json:"reserved"`
	Remaining json.Number `json:"remaining"`
	ResetsAt  *time.Time  `json:"resets_at"`
}

// usagePath is where the admin endpoint lists counters.
const usagePath = "/llm/usage"

// rows reads all pages.
func (q *query) rows() (all []json.RawMessage, err error) {
	values := make(url.Values)
	if q.instance != "" {
		values.Set("instance", q.instance)
	}
	if q.consumer != "" {
		values.Set("consumer", q.consumer)
	}
	seen := make(map[string]bool)
	for next := usagePath + "?" + values.Encode(); next != ""; {
		if seen[next] {
			return nil, errors.New("the pages of the admin endpoint do not end")
		}
		seen[next] = true
		var page []json.RawMessage
		if page, next, err = q.page(next); err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

func (q *query) page(uri string) (rows []json.RawMessage, next string, err error) {
	resp, err := caddycmd.AdminAPIRequest(q.address, http.MethodGet, uri, nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&rows); err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", uri, err)
	}
	return rows, nextPage(resp.Header.Values("Link")), nil
}

// nextPage is where the Link fields lead (RFC 8288), as far as it is a page of the same
// list; empty if there is none.
func nextPage(links []string) string {
	for _, link := range links {
		target, params, ok := strings.Cut(link, ">")
		target, opens := strings.CutPrefix(strings.TrimSpace(target), "<")
		if ok && opens && strings.HasPrefix(target, usagePath+"?") && strings.Contains(params, `rel="next"`) {
			return target
		}
	}
	return ""
}

func (q *query) counters() ([]counter, error) {
	rows, err := q.rows()
	if err != nil {
		return nil, err
	}
	all := make([]counter, len(rows))
	for i, r := range rows {
		if err := json.Unmarshal(r, &all[i]); err != nil {
			return nil, fmt.Errorf("reading row %d of %s: %w", i, usagePath, err)
		}
	}
	return all, nil
}
