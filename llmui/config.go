package llmui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// limiters are the handlers whose limits the page edits.
var limiters = []string{"token_limit", "cost_limit"}

// configRule is a limit as the config has it.
type configRule struct {
	// Path is where it stands in the instance: `limits/0`, `groups/1/models/0/limits/2`.
	Path string `json:"path"`

	Amount  string `json:"amount"`
	Unit    string `json:"unit,omitempty"` // empty for dollars
	Window  string `json:"window,omitempty"`
	Rolling bool   `json:"rolling,omitempty"`
	Burst   string `json:"burst,omitempty"`
	Shadow  bool   `json:"shadow,omitempty"`

	Group  string   `json:"group,omitempty"`  // whose members it counts
	Models []string `json:"models,omitempty"` // globs of the models that it counts

	at map[string]any
}

// instanceConfig is the config of a limiter, as much of it as is edited.
type instanceConfig struct {
	Name    string       `json:"name"`
	Handler string       `json:"handler"`
	Etag    string       `json:"etag"` // of the config that this was read from
	Rules   []configRule `json:"rules"`

	object map[string]any // all of it
}

// configEdit is what is to change. All of it does, by one load of the config, or nothing.
type configEdit struct {
	// Etag is that of the config that the operator saw. Has it changed meanwhile, the
	// answer is 412.
	Etag string `json:"etag"`
	// Set are new amounts, by path.
	Set map[string]struct {
		Amount string `json:"amount"`
		Burst  string `json:"burst"` // empty where the rule has none
	} `json:"set"`
	// Remove are paths of top-level limits.
	Remove []string `json:"remove"`
	// Add are new top-level limits.
	Add []struct {
		Amount  string `json:"amount"`
		Unit    string `json:"unit,omitempty"`
		Window  string `json:"window,omitempty"`
		Rolling bool   `json:"rolling,omitempty"`
	} `json:"add"`
}

// statusError is an error that the page is to tell with a status.
type statusError struct {
	status int
	error
}

func (e *statusError) Unwrap() error { return e.error }

// showConfig answers with the limits of an instance, as its config has them.
func (s *server) showConfig(w http.ResponseWriter, r *http.Request) {
	c, err := s.instance(r.Context(), r.PathValue("name"))
	if err != nil {
		writeStatusError(w, err)
		return
	}
	writeJSON(w, c)
}

// editConfig changes limits of an instance and has Caddy load the config. Counts are by
// the instance's name and stay.
func (s *server) editConfig(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	var e configEdit
	body, err := readBody(w, r)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(&e)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("reading the edit: %w", err))
		return
	}
	c, err := s.instance(r.Context(), name)
	if err != nil {
		writeStatusError(w, err)
		return
	}
	if e.Etag != c.Etag {
		writeError(w, http.StatusPreconditionFailed, errors.New("the config has changed since it was shown here; look at it again"))
		return
	}
	if err := c.apply(e); err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	text, err := json.Marshal(c.object)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err)
		return
	}
	id, err := segment(name)
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	resp, err := s.admin.do(context.WithoutCancel(r.Context()), http.MethodPatch, "/id/"+id, http.Header{"If-Match": {c.Etag}}, text)
	if err != nil {
		writeError(w, http.StatusBadGateway, err)
		return
	}
	if resp.StatusCode >= http.StatusBadRequest {
		pass(w, resp)
		return
	}
	_ = resp.Body.Close()
	writeJSON(w, struct{}{})
}

// instance reads the config of a limiter. Of other things that have an id, nothing is
// said but that they are none.
func (s *server) instance(ctx context.Context, name string) (*instanceConfig, error) {
	id, err := segment(name)
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, err}
	}
	resp, err := s.admin.do(ctx, http.MethodGet, "/id/"+id, nil, nil)
	if err != nil {
		return nil, &statusError{http.StatusBadGateway, err}
	}
	text, err := read(resp)
	if err != nil {
		return nil, &statusError{http.StatusBadGateway, err}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{http.StatusNotFound, fmt.Errorf("the config has nothing with the @id %q: an instance can be edited here if its name stands in a Caddyfile once and it shares no pool, or if its JSON has an @id", name)}
	}
	c, err := parseInstance(text)
	if err != nil {
		return nil, &statusError{http.StatusNotFound, fmt.Errorf("%q: %w", name, err)}
	}
	c.Name, c.Etag = name, resp.Header.Get("Etag")
	return c, nil
}

// parseInstance reads the JSON of a limiter.
func parseInstance(text []byte) (*instanceConfig, error) {
	c := &instanceConfig{Rules: []configRule{}}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&c.object); err != nil {
		return nil, errors.New("it is no limiter")
	}
	c.Handler, _ = c.object["handler"].(string)
	if !slices.Contains(limiters, c.Handler) {
		return nil, errors.New("it is no limiter")
	}
	c.addRules("", c.object, configRule{})
	for i, g := range objects(c.object["groups"]) {
		of := configRule{}
		of.Group, _ = g["name"].(string)
		c.addRules("groups/"+strconv.Itoa(i)+"/", g, of)
	}
	return c, nil
}

// addRules adds those of the top level or of a group, and of the models in it.
func (c *instanceConfig) addRules(path string, v map[string]any, of configRule) {
	for i, l := range objects(v["limits"]) {
		c.addRule(path+"limits/"+strconv.Itoa(i), l, of)
	}
	for i, m := range objects(v["models"]) {
		of.Models = nil
		match, _ := m["match"].([]any)
		for _, glob := range match {
			text, _ := glob.(string)
			of.Models = append(of.Models, text)
		}
		for j, l := range objects(m["limits"]) {
			c.addRule(path+"models/"+strconv.Itoa(i)+"/limits/"+strconv.Itoa(j), l, of)
		}
	}
}

func (c *instanceConfig) addRule(path string, l map[string]any, of configRule) {
	of.Path, of.at = path, l
	of.Amount, _ = l["amount"].(string)
	of.Unit, _ = l["unit"].(string)
	of.Window, _ = l["window"].(string)
	of.Rolling, _ = l["rolling"].(bool)
	of.Burst, _ = l["burst"].(string)
	of.Shadow, _ = l["shadow"].(bool)
	c.Rules = append(c.Rules, of)
}

// objects are the elements of an array that are objects, others as empty ones, so that
// indexes hold.
func objects(v any) []map[string]any {
	array, _ := v.([]any)
	all := make([]map[string]any, len(array))
	for i, e := range array {
		all[i], _ = e.(map[string]any)
	}
	return all
}

// apply changes the object. Whether amounts make sense is for Caddy to say, which
// checks all of the config before it uses any of it.
func (c *instanceConfig) apply(e configEdit) error {
	find := func(path string) (*configRule, error) {
		i := slices.IndexFunc(c.Rules, func(ru configRule) bool { return ru.Path == path && ru.at != nil })
		if i < 0 {
			return nil, fmt.Errorf("there is no limit at %q", path)
		}
		return &c.Rules[i], nil
	}
	for path, set := range e.Set {
		ru, err := find(path)
		if err != nil {
			return err
		}
		ru.at["amount"] = set.Amount
		if (set.Burst != "") != (ru.Burst != "") {
			return fmt.Errorf("the limit at %q stays with or without a burst: that changes what it counts", path)
		}
		if set.Burst != "" {
			ru.at["burst"] = set.Burst
		}
	}
	limits, _ := c.object["limits"].([]any)
	gone := make(map[int]bool)
	for _, path := range e.Remove {
		if _, err := find(path); err != nil {
			return err
		}
		i := slices.IndexFunc(c.Rules, func(ru configRule) bool { return ru.Path == path })
		if path != "limits/"+strconv.Itoa(i) {
			return fmt.Errorf("the limit at %q is not at the top level", path)
		}
		gone[i] = true
	}
	kept := []any{}
	for i, l := range limits {
		if !gone[i] {
			kept = append(kept, l)
		}
	}
	for _, add := range e.Add {
		kept = append(kept, add)
	}
	if len(e.Remove)+len(e.Add) > 0 {
		c.object["limits"] = kept
	}
	return nil
}

// writeStatusError answers with a statusError, or any other as 500.
func writeStatusError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var se *statusError
	if errors.As(err, &se) {
		status = se.status
	}
	writeError(w, status, err)
}
