package limit

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
)

// ModelBlock is limits of the models that its globs match. A model belongs to the
// first block that has a glob for it.
type ModelBlock struct {
	// Match are globs of models' names, in which `*` stands for any characters, `/` too.
	// They are compared without regard to case, with the name as it was sent and with
	// its normal form: without the path and the provider before it, Bedrock's geography,
	// OpenRouter's variant and one date behind it. At least one.
	Match []string `json:"match,omitempty"`
	// Limits are the rules. Without any, the models of the block are held to those beside
	// the blocks alone, and to no block after it. Default: none.
	Limits []Rule `json:"limits,omitempty"`
	// PerModel counts each model of the block apart, by its normal form; without it all
	// count together. A consumer has counters for 100 models at most, beside those that
	// are matched without a `*`; what is more counts together as `other`. Default: false.
	PerModel bool `json:"per_model,omitempty"`
	// Type is what answers call the kind of these models. Default: by the API, `text`,
	// `embedding`, `image` or `audio`.
	Type string `json:"type,omitempty"`
}

// block is a model block that is ready to be checked.
type block struct {
	globs    []modelname.Glob
	words    string // the globs: `(qwen* glm*)`
	short    string // the same in what clients read, which names a few of many
	id       string // the same for the same globs
	rules    []*rule
	perModel bool
	kind     string                // type
	own      recent[slot, []*rule] // of its models that are counted apart
}

// maxGlobs bounds the globs of a block, and maxGlob each.
const (
	maxGlobs = 256
	maxGlob  = 256
)

// block compiles a block; before are those that stand before it.
func (c *Config) block(mb *ModelBlock, before []*block, zone *time.Location, k *Kind) (*block, error) {
	if err := mb.check(); err != nil {
		return nil, err
	}
	b := &block{perModel: mb.PerModel, kind: mb.Type, words: "(" + strings.Join(mb.Match, " ") + ")", short: short(mb.Match)}
	names := make([]string, 0, len(mb.Match))
	for _, s := range mb.Match {
		g := modelname.ForModels(s)
		if err := b.reachable(s, g, before); err != nil {
			return nil, err
		}
		names = append(names, g.String())
		b.globs = append(b.globs, g)
	}
	slices.Sort(names)
	b.id = blockID(names)
	rules, err := c.rules(mb.Limits, zone, k)
	if err != nil {
		return nil, err
	}
	for _, ru := range rules {
		ru.block = b
		ru.words, ru.said = ru.words+" "+b.words, ru.said+" "+b.short
		ru.store.ID += b.id
		ru.intern()
		ru.fixed = newFixedHeaders(ru)
	}
	b.rules = rules
	return b, nil
}

// reachable checks that there can be models for a glob, which the config writes as s. The
// blocks before take theirs first.
func (b *block) reachable(s string, g modelname.Glob, before []*block) error {
	twice := func(other modelname.Glob) bool { return other.String() == g.String() }
	if slices.ContainsFunc(b.globs, twice) {
		return fmt.Errorf("model %q stands here twice", s)
	}
	samples := g.Samples()
	for _, other := range before {
		if slices.ContainsFunc(other.globs, twice) {
			return fmt.Errorf("model %q stands here twice, and a model belongs to the first block alone", s)
		}
		if i := slices.IndexFunc(other.globs, func(o modelname.Glob) bool { return o.MatchAny(samples) }); i >= 0 {
			return fmt.Errorf("model %q never counts here: it belongs to the block before that has %q; put the narrower block first", s, other.globs[i].String())
		}
	}
	return nil
}

// shortMost is how long the globs of a block may be where clients read them: fields of
// headers that are longer than a few kB are refused by some.
const shortMost = 96

// short names as many globs as there is room for: `(qwen* glm* and 98 more)`.
func short(globs []string) string {
	n, size := 0, 0
	for n < len(globs) && (n == 0 || size+len(globs[n]) < shortMost) {
		size += len(globs[n]) + 1
		n++
	}
	words := "(" + strings.Join(globs[:n], " ")
	if n < len(globs) {
		words += fmt.Sprintf(" and %d more", len(globs)-n)
	}
	return words + ")"
}

// check checks a block by itself.
func (mb *ModelBlock) check() error {
	if err := mb.checkMatch(); err != nil {
		return err
	}
	return mb.checkType()
}

func (mb *ModelBlock) checkMatch() error {
	switch {
	case len(mb.Match) == 0:
		return errors.New("model needs a glob, such as `model qwen*`")
	case len(mb.Match) > maxGlobs:
		return fmt.Errorf("model has more than %d globs", maxGlobs)
	}
	for _, s := range mb.Match {
		if s == "" || len(s) > maxGlob || strings.ContainsFunc(s, notInGlob) {
			return fmt.Errorf("model %q is not a name or a glob such as qwen*", s)
		}
	}
	return nil
}

func (mb *ModelBlock) checkType() error {
	if mb.Type != "" && (len(mb.Type) > maxType || strings.ContainsFunc(mb.Type, notInType)) {
		return fmt.Errorf("type %q is not a word such as text, embedding, image, audio or video", mb.Type)
	}
	return nil
}

// notInGlob tells of characters that no model's name has, and that could not stand in
// the header fields that name the rule.
func notInGlob(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"\(){}`, r)
}

// maxType bounds the word for a kind of models.
const maxType = 32

func notInType(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// idMost is the length of the globs that are written in a counter's name as they are.
const idMost = 64

// blockID is what the names of a block's counters end with. No two lists of globs have
// the same.
func blockID(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(url.PathEscape(name))
	}
	if b.Len() > idMost {
		sum := sha256.Sum256([]byte(b.String()))
		return " [#" + base64.RawURLEncoding.EncodeToString(sum[:16]) + "]"
	}
	return " [" + b.String() + "]"
}

// blockOf is the block that a model belongs to, nil if it is in none. exact is the name
// in the config, where it stands there as it is. The empty name of a call that names no
// model belongs to the first block that has the glob `*`.
func (s *ruleset) blockOf(forms []string) (b *block, exact string) {
	for _, b := range s.blocks {
		var found bool
		for _, g := range b.globs {
			if !g.MatchAny(forms) {
				continue
			}
			if found = true; g.Exact() {
				return b, g.String()
			}
		}
		if found {
			return b, ""
		}
	}
	return nil, ""
}

// takesAll tells whether all models belong to the block that are in none before it.
func (b *block) takesAll() bool {
	return slices.ContainsFunc(b.globs, modelname.Glob.All)
}

// escapable tells whether there are limits of models that a call escapes which chooses its
// model when it has been admitted.
func (s *ruleset) escapable() bool {
	return slices.ContainsFunc(s.blocks, func(b *block) bool {
		return slices.ContainsFunc(b.rules, func(ru *rule) bool { return !ru.shadow })
	})
}

// unlisted refuses a model that is in no block. A caller for whom there are no blocks
// but limits is limited in all models.
func (l *Limiter) unlisted(s *ruleset) bool {
	return l.config.Unlisted == "deny" && (len(s.blocks) > 0 || len(s.rules) == 0)
}

func modelNotAllowed(named bool) *Refusal {
	f := &Refusal{
		Status: http.StatusForbidden, Code: "model_not_allowed", Type: "permission_error", Param: "model",
		Message: "this gateway does not allow the model of this call",
	}
	if !named {
		f.Message = "this gateway allows only calls that name a model"
	}
	return f
}
