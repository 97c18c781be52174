package prices

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// errNotGenAI is returned for a document that is no table of genai-prices.
var errNotGenAI = errors.New("not a table of genai-prices")

// ParseGenAI reads a table in the form of genai-prices v2: a list of providers with
// their models, prices in USD per million tokens and per thousand of other things, in
// steps by the length of the prompt, by date and by hour. An object that has the list
// as "providers" may tell with "as_of" when it was collected, as YYYY-MM-DD.
//
// A model is known by its id and by the names that its match clause spells out. A
// pattern is used for what it says literally, and never to price a name that is only
// like another.
//
// A model whose prices cannot be read as a whole is left out and stands in
// [Layer.Faults]. The error is for a document that is none.
func ParseGenAI(data []byte) (*Layer, error) {
	if !gjson.ValidBytes(data) {
		return nil, fmt.Errorf("%w: no JSON", errNotGenAI)
	}
	doc := gjson.ParseBytes(data)
	l := &Layer{}
	if doc.IsObject() {
		l.Source = doc.Get("source").String()
		if day := doc.Get("as_of"); day.Exists() {
			t, err := time.Parse(time.DateOnly, day.String())
			if err != nil {
				return nil, fmt.Errorf("%w: as_of: %w", errNotGenAI, err)
			}
			l.AsOf = t
		}
		doc = doc.Get("providers")
	}
	if !doc.IsArray() {
		return nil, fmt.Errorf("%w: no list of providers", errNotGenAI)
	}
	g := genAI{layer: l, known: make(map[ident]bool), own: make(map[string][]*Row)}
	providers := doc.Array()
	for _, p := range providers {
		if p.Get("id").String() == "" || !p.Get("models").IsArray() {
			return nil, fmt.Errorf("%w: a provider without id or models", errNotGenAI)
		}
		g.provider(p)
	}
	for _, p := range providers {
		g.fallbacks(p)
	}
	return l, nil
}

// genAI collects the rows of a document.
type genAI struct {
	layer *Layer
	known map[ident]bool
	own   map[string][]*Row // by the document's id of the provider
}

// genAIProviders are the ids of genai-prices that LiteLLM spells in another way.
var genAIProviders = map[string]string{
	"aws":            "bedrock",
	"fireworks":      "fireworks_ai",
	"github-copilot": "github_copilot",
	"google":         "gemini",
	"moonshotai":     "moonshot",
	"together":       "together_ai",
	"voyageai":       "voyage",
	"x-ai":           "xai",
}

// providerOf is LiteLLM's name of the provider of a model.
func providerOf(id, model string) string {
	if id == "google" && strings.HasPrefix(model, "claude") {
		return "vertex_ai-anthropic_models"
	}
	if name, ok := genAIProviders[id]; ok {
		return name
	}
	return id
}

// How literally a name is a model's, the most literal first.
const (
	byEquals = iota + 1
	byID
	byPattern
	numClaims = byPattern
)

// provider adds a provider's models: first all names that are spelled out, then the
// ids, then what patterns name, so that no pattern takes a name from a model that has
// it literally. Of equal claims the first in the document holds.
func (g *genAI) provider(p gjson.Result) {
	id := p.Get("id").String()
	type model struct {
		names map[int][]string
		rows  []*Row // without keys
	}
	var models []model
	p.Get("models").ForEach(func(_, m gjson.Result) bool {
		name := m.Get("id").String()
		rows, err := genAIRows(m)
		if err != nil {
			g.layer.Faults = append(g.layer.Faults, Fault{Provider: providerOf(id, name), Key: name, Reason: err.Error()})
			return true
		}
		provider := providerOf(id, name)
		for _, r := range rows {
			r.Provider = provider
			r.ContextWindow = max(0, m.Get("context_window").Int())
		}
		names := map[int][]string{byID: idNames(id, name)}
		literals(m.Get("match"), names)
		models = append(models, model{names, rows})
		return true
	})
	for claim := byEquals; claim <= numClaims; claim++ {
		for _, m := range models {
			for _, name := range m.names[claim] {
				g.add(id, name, m.rows)
			}
		}
	}
}

// add gives a name the rows of a model, unless it has some.
func (g *genAI) add(provider, name string, rows []*Row) {
	if name == "" || len(rows) == 0 {
		return
	}
	id, _ := identOf(&Row{Provider: rows[0].Provider, Key: name})
	if g.known[id] {
		return
	}
	g.known[id] = true
	for _, r := range rows {
		c := *r
		c.Key = name
		g.layer.Rows = append(g.layer.Rows, &c)
		g.own[provider] = append(g.own[provider], &c)
	}
}

// fallbacks gives a provider the models of those that it resells at the same prices, as
// the document says, where it has none of that name itself.
func (g *genAI) fallbacks(p gjson.Result) {
	id := p.Get("id").String()
	p.Get("fallback_model_providers").ForEach(func(_, of gjson.Result) bool {
		byName := make(map[string][]*Row)
		var order []string
		for _, r := range g.own[of.String()] {
			if byName[r.Key] == nil {
				order = append(order, r.Key)
			}
			c := *r
			c.Provider = providerOf(id, r.Key)
			byName[r.Key] = append(byName[r.Key], &c)
		}
		for _, name := range order {
			rows := byName[name]
			if key, _ := identOf(rows[0]); !g.known[key] {
				g.known[key] = true
				g.layer.Rows = append(g.layer.Rows, rows...)
			}
		}
		return true
	})
}

// literals adds the names that a match clause spells out. What stands in a conjunction
// is no name by itself, and a regular expression is none.
func literals(clause gjson.Result, names map[int][]string) {
	clause.ForEach(func(kind, v gjson.Result) bool {
		switch kind.String() {
		case "or":
			v.ForEach(func(_, part gjson.Result) bool {
				literals(part, names)
				return true
			})
		case "equals":
			names[byEquals] = append(names[byEquals], v.String())
		case "starts_with", "ends_with", "contains":
			names[byPattern] = append(names[byPattern], v.String())
		}
		return true
	})
}

// bedrockRegions are the prefixes of Bedrock's inference profiles that stay in one
// part of the world.
var bedrockRegions = [...]string{"us.", "eu.", "apac.", "jp.", "au.", "ca.", "us-gov."}

// idNames are the names that a model's id stands for: itself, but Bedrock's models
// named "regional." are those of every region, and those invoked without a profile.
func idNames(provider, id string) []string {
	rest, regional := strings.CutPrefix(id, "regional.")
	if provider != "aws" || !regional {
		return []string{id}
	}
	names := []string{rest}
	for _, region := range bedrockRegions {
		names = append(names, region+rest)
	}
	return names
}
