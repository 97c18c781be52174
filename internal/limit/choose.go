package limit

import (
	"net/http"
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// A call may name several models: fallbacks, the choices of a router, models of tools. It
// is held to the limits of all of them, since any may serve it. When it has ended, it
// counts for the one that it asks for, and of the others for the one that the answer
// names; where that is none of them, for all. The model that is asked for always pays: it
// may be an alias of the one that the answer names, and clients can name that one, too.

// share is for which models of a call a rule counts.
type share struct {
	models []string // normal names
	always bool     // whatever the answer says
}

// choose finds the rules that a call has to fit in.
func (e *entry) choose(r *http.Request, call *meter.Call, set *ruleset, entity store.Entity, known bool) (*Refusal, error) {
	e.rules = append(e.rules[:0], set.rules...)
	if len(set.blocks) == 0 && !e.l.unlisted(set) {
		return nil, nil
	}
	model, others := call.Model(), call.OtherModels()
	if f, err := e.chooseOf(r, call, set, entity, known, model, true, len(others) > 0); f != nil || err != nil {
		return f, err
	}
	for _, other := range others {
		if f, err := e.chooseOf(r, call, set, entity, known, other, false, true); f != nil || err != nil {
			return f, err
		}
	}
	return nil, nil
}

// chooseOf adds the rules of one of the models of a call.
func (e *entry) chooseOf(r *http.Request, call *meter.Call, set *ruleset, entity store.Entity, known bool, model string, main, several bool) (*Refusal, error) {
	forms := modelname.Forms(model)
	normal := forms[len(forms)-1]
	if several {
		e.models = append(e.models, normal)
	}
	var b *block
	var exact string
	if model != "" || call.Endpoint.Class != usage.Free { // such as a list of models
		b, exact = set.blockOf(forms)
	}
	switch {
	case b == nil && e.l.unlisted(set) && call.Endpoint.Class != usage.Free:
		f := modelNotAllowed(model != "")
		if !e.l.config.Shadow {
			return f, nil
		}
		call.Shadowed(e.l.id) // and what counts every call counts this one
		e.l.count(r, f, true)
		return nil, nil
	case b == nil && model == "" && call.Endpoint.Class == usage.Realtime && set.escapable():
		return notMetered("it opens a connection whose model is chosen later"), nil
	case b == nil:
		return nil, nil
	}
	if main {
		e.kind = b.kind
	}
	rules := b.rules
	if b.perModel && len(b.rules) > 0 {
		s, err := e.slot(r.Context(), entity, known, normal, exact)
		if err != nil {
			return nil, err
		}
		rules = b.rulesOf(s)
	}
	// without a model that is asked for, each of the others may be the alias
	always := main || call.Model() == ""
	for _, ru := range rules {
		i := slices.IndexFunc(e.rules, func(has *rule) bool { return has.store.ID == ru.store.ID })
		if i < 0 {
			i = len(e.rules)
			e.rules = append(e.rules, ru)
		}
		if !several {
			continue
		}
		for len(e.shares) <= i {
			e.shares = append(e.shares, share{always: true}) // those that count every call
		}
		if sh := &e.shares[i]; len(sh.models) == 0 {
			*sh = share{models: []string{normal}, always: always}
		} else {
			sh.models, sh.always = append(sh.models, normal), sh.always || always
		}
	}
	return nil, nil
}

// part is what of a call's use counts in a rule. some is false if nothing does; inside is
// set if it is what models did inside a call that another one answered.
func (e *entry) part(i int, o *meter.Outcome, all *usage.Usage) (part usage.Usage, some, inside bool) {
	if i >= len(e.shares) || e.shares[i].always {
		return *all, true, false
	}
	served := modelname.Normal(o.ServedModel)
	if sh := &e.shares[i]; served != "" && slices.Contains(e.models, served) && !slices.Contains(sh.models, served) {
		for j := range o.Other {
			if slices.Contains(sh.models, modelname.Normal(o.Other[j].Model)) {
				part.Add(&o.Other[j].Usage)
				some = true
			}
		}
		return part, some, true
	}
	return *all, true, false
}

// whose is the model that brought a rule, by its normal name, and what the config calls its
// kind. The name is empty for the model that is asked for.
func (e *entry) whose(i int) (model, kind string) {
	b := e.rules[i].block
	if b == nil {
		return "", e.kind
	}
	if i < len(e.shares) && len(e.shares[i].models) > 0 {
		if first := e.shares[i].models[0]; first != e.models[0] {
			model = first
		}
	}
	return model, b.kind
}
