package llmapp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// bodyMost bounds what an operator sends, in bytes.
const bodyMost = 64 << 10

// members are those of the JSON object that an operator sends.
type members map[string]json.RawMessage

// readMembers reads the body of a request: an object that has no members but those.
func readMembers(r *http.Request, known ...string) (members, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, bodyMost+1))
	if err != nil {
		return nil, fmt.Errorf("reading the body: %w", err)
	}
	if len(body) > bodyMost {
		return nil, fmt.Errorf("the body is larger than %d bytes", bodyMost)
	}
	return parseMembers(body, known)
}

func parseMembers(body []byte, known []string) (members, error) {
	var m members
	d := json.NewDecoder(bytes.NewReader(body))
	err := d.Decode(&m)
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("something follows the object")
	}
	if err == nil && m == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, fmt.Errorf("the body is not a JSON object with %s: %w", strings.Join(known, ", "), err)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown member %q: there are %s", name, strings.Join(known, ", "))
		}
	}
	return m, nil
}

// shown is what was sent, as far as an error repeats it.
func shown(raw json.RawMessage) string {
	const most = 64
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}

// text is a member that is a string, empty if it is not there or null.
func (m members) text(name string) (string, error) {
	var s *string
	if raw, ok := m[name]; ok {
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", fmt.Errorf("%s: expected a string, not %s", name, shown(raw))
		}
	}
	if s == nil {
		return "", nil
	}
	return *s, nil
}

// texts reads members that are strings into what they are for.
func (m members) texts(into map[string]*string) error {
	for _, name := range slices.Sorted(maps.Keys(into)) {
		var err error
		if *into[name], err = m.text(name); err != nil {
			return err
		}
	}
	return nil
}

// instanceOf is the instance of that id. The error says which there are.
func (a *App) instanceOf(id string) (Instance, error) {
	if id == "" {
		return nil, apiError(http.StatusBadRequest, fmt.Errorf("instance: expected the id of one: %s", a.ids()))
	}
	for _, in := range a.list() {
		if in.ID() == id {
			return in, nil
		}
	}
	return nil, apiError(http.StatusNotFound, a.unknownInstance(id))
}

func (a *App) unknownInstance(id string) error {
	return fmt.Errorf("instance: there is no %q: there are %s", id, a.ids())
}

// ids are the instances by name, as errors list them.
func (a *App) ids() string {
	var ids []string
	for _, in := range a.list() {
		ids = append(ids, fmt.Sprintf("%q", in.ID()))
	}
	if len(ids) == 0 {
		return "none in the running config"
	}
	return strings.Join(ids, ", ")
}

// entityOf is the counters of a consumer, or those that all callers share.
func entityOf(in Instance, consumer string) (store.Entity, error) {
	switch {
	case in.Shared() && consumer != "":
		return store.Entity{}, apiError(http.StatusBadRequest, fmt.Errorf("consumer: instance %q counts all callers together: leave the consumer out", in.ID()))
	case !in.Shared() && consumer == "":
		return store.Entity{}, apiError(http.StatusBadRequest, fmt.Errorf("consumer: expected one, as GET /llm/usage lists them: instance %q counts by %s", in.ID(), strings.Join(in.Key(), " ")))
	}
	return store.Entity{Instance: in.ID(), Consumer: consumer}, nil
}

// rulesOf are the rules of a consumer.
func rulesOf(in Instance, consumer string) []RuleInfo {
	if by, ok := in.(RulesByConsumer); ok {
		return by.RulesOf(consumer)
	}
	return in.Rules()
}

// rulesForAll are the rules of a consumer that count more than one model together, and of
// groups that it is not in: who moves keeps what is used. Each counter is there once. Of
// rules that count each model apart there is the one of the config, which is no counter's.
func rulesForAll(in Instance, consumer string) []RuleInfo {
	var all []RuleInfo
	for _, info := range slices.Concat(rulesOf(in, consumer), in.Rules()) {
		known := slices.ContainsFunc(all, func(has RuleInfo) bool { return has.Store.ID == info.Store.ID })
		if info.Model == "" && !known {
			all = append(all, info)
		}
	}
	return all
}

// rulesForModel are the rules that count a consumer's calls of a model.
func rulesForModel(in Instance, consumer, model string) []RuleInfo {
	if by, ok := in.(RulesByModel); ok {
		return by.RulesOfModel(consumer, model)
	}
	return rulesOf(in, consumer)
}
