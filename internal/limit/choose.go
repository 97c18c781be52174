package limit

import (
	"net/http"
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
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
func (e *entry) choose(r *http.Request, call *meter.Call, set *ruleset) *Refusal {
	if s := e.special; s != nil {
		s.models, s.shares = s.models[:0], s.shares[:0]
	}
	if len(set.blocks) == 0 {
		e.rules = set.rules
		if !e.l.unlisted(set) {
			return nil
		}
	} else {
		e.rules = append(e.rules[:0], set.rules...)
	}
	model, others := call.Model(), call.OtherModels()
	if f := e.chooseOf(r, call, set, model, true, len(others) > 0); f != nil {
		return f
	}
	for _, other := range others {
		if f := e.chooseOf(r, call, set, other, false, true); f != nil {
			return f
		}
	}
	return nil
}

// chooseOf adds the rules of one of the models of a call.
func (e *entry) chooseOf(r *http.Request, call *meter.Call, set *ruleset, model string, main, several bool) *Refusal {
	forms := modelname.Forms(model)
	normal := forms[len(forms)-1]
	if several {
		s := e.specially()
		s.models = append(s.models, normal)
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
			return f
		}
		if !e.again { // else it has been told
			call.Shadowed(e.l.id)
			e.l.count(r, f, true)
		}
		return nil // and what counts every call counts this one
	case b == nil && model == "" && call.Endpoint.Class == usage.Realtime && set.escapable():
		return notMetered("it opens a connection whose model is chosen later")
	case b == nil:
		return nil
	}
	if main && b.kind != "" {
		e.specially().kind = b.kind
	}
	rules := b.rules
	if b.perModel && len(b.rules) > 0 {
		rules = b.rulesOf(e.slot(normal, exact))
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
		s := e.specially()
		for len(s.shares) <= i {
			s.shares = append(s.shares, share{always: true}) // those that count every call
		}
		if sh := &s.shares[i]; len(sh.models) == 0 {
			*sh = share{models: []string{normal}, always: always}
		} else {
			sh.models, sh.always = append(sh.models, normal), sh.always || always
		}
	}
	return nil
}

// part is what of a call's use counts in a rule. It is nil if nothing does; inside is set
// if it is what models did inside a call that another one answered.
func (e *entry) part(i int, o *meter.Outcome, all *usage.Usage) (part *usage.Usage, inside bool) {
	shares := e.shares()
	if i >= len(shares) || shares[i].always {
		return all, false
	}
	served := modelname.Normal(o.ServedModel)
	if sh := &shares[i]; served != "" && slices.Contains(e.models(), served) && !slices.Contains(sh.models, served) {
		for j := range o.Other {
			if slices.Contains(sh.models, modelname.Normal(o.Other[j].Model)) {
				if part == nil {
					part = new(usage.Usage)
				}
				part.Add(&o.Other[j].Usage)
			}
		}
		return part, true
	}
	return all, false
}

// whose is the model that brought a rule, by its normal name, and what the config calls its
// kind. The name is empty for the model that is asked for.
func (e *entry) whose(i int) (model, kind string) {
	b := e.rules[i].block
	if b == nil {
		if e.special != nil {
			kind = e.special.kind
		}
		return "", kind
	}
	if shares := e.shares(); i < len(shares) && len(shares[i].models) > 0 {
		if first := shares[i].models[0]; first != e.models()[0] {
			model = first
		}
	}
	return model, b.kind
}
