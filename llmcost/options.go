package llmcost

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/pricing"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

// options checks the config and returns what it says about prices.
func (h *Handler) options() (pricing.Options, error) {
	o := pricing.Options{Provider: h.Provider, Aliases: h.Alias}
	if strings.ContainsAny(h.Provider, " \t/") {
		return o, fmt.Errorf("provider %q is not the name of one, such as openai", h.Provider)
	}
	if err := checkSources(h.Prices); err != nil {
		return o, err
	}
	own, err := h.own()
	if err != nil {
		return o, err
	}
	o.Own = own
	if h.UnknownModel != nil {
		if err := h.UnknownModel.apply(&o); err != nil {
			return o, err
		}
	}
	return o, pricing.Check(o)
}

// own returns a function that makes the operator's prices: what prices by them keeps what
// it made of a table's rows, which must not outlive the table.
func (h *Handler) own() (func() []*prices.Own, error) {
	build := func() (all []*prices.Own, err error) {
		seen := make(map[string]bool)
		for i, p := range h.Own {
			key := p.key()
			if seen[key] {
				return nil, fmt.Errorf("price[%d]: %q stands here twice", i, p.Match)
			}
			seen[key] = true
			o, err := p.own()
			if err != nil {
				return nil, fmt.Errorf("price[%d]: %w", i, err)
			}
			all = append(all, o)
		}
		return all, nil
	}
	if _, err := build(); err != nil {
		return nil, err
	}
	return func() []*prices.Own {
		all, _ := build() // it was right before
		return all
	}, nil
}

// key is the same for prices of the same models.
func (p *Price) key() string { return strings.ToLower(strings.TrimSpace(p.Match)) }

// own makes the price of the rates.
func (p *Price) own() (*prices.Own, error) {
	o, err := prices.NewOwn(p.Match)
	if err != nil {
		return nil, err
	}
	if len(p.Rates) == 0 {
		return nil, fmt.Errorf("price %q needs a rate, such as `input 2.50`", p.Match)
	}
	for _, field := range slices.Sorted(maps.Keys(p.Rates)) {
		if err := o.Set(field, p.Rates[field]); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// apply puts the policy among the options.
func (u *UnknownModel) apply(o *pricing.Options) error {
	o.Unknown = pricing.Unknown(u.Policy)
	input, output := u.Input, u.Output
	switch o.Unknown {
	case pricing.Deny, pricing.Unpriced:
	case pricing.Zero:
		input, output = cmp.Or(input, "0"), cmp.Or(output, "0")
	case pricing.AtDefault:
		if input == "" || output == "" {
			return errors.New("unknown_model default needs two prices in USD per million tokens, such as `default 5 15`")
		}
	default:
		return fmt.Errorf("unknown_model %q is none of unpriced, deny, zero, default", u.Policy)
	}
	if o.Unknown != pricing.AtDefault && (u.Input != "" || u.Output != "") {
		return fmt.Errorf("unknown_model %s takes no prices", u.Policy)
	}
	if input == "" {
		return nil
	}
	own := &Price{Match: "*", Rates: map[string]string{"input": input, "output": output}}
	if _, err := own.own(); err != nil {
		return fmt.Errorf("unknown_model: %w", err)
	}
	o.AnyModel = func() *prices.Own {
		p, _ := own.own() // it was right before
		return p
	}
	return nil
}
