package prices

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// ofInput sets rates as multiples of the input's, in every tier.
func (b *block) ofInput(rates *Rates, tiers int) error {
	for _, name := range slices.Sorted(maps.Keys(b.OfInput)) {
		u, ok := unitOf(name)
		if !ok || !u.Token() {
			return fmt.Errorf("%q is no kind of token", name)
		}
		ratio, err := parseRatio(b.OfInput[name])
		if err != nil {
			return err
		}
		if rates.has(u) {
			continue
		}
		for tier := range tiers + 1 {
			if in, set := rates.Get(Input, Standard, tier); set {
				rates.Set(u, Standard, tier, ratio.of(in))
			}
		}
	}
	return nil
}

// services sets rates of services as multiples of the standard ones, in every tier.
func (b *block) services(rates *Rates) error {
	for _, name := range slices.Sorted(maps.Keys(b.Services)) {
		i := slices.Index(serviceNames[:], name)
		if i <= int(Standard) {
			return fmt.Errorf("%q is no service", name)
		}
		ratio, err := parseRatio(b.Services[name])
		if err != nil {
			return err
		}
		if rates.serves(Service(i)) {
			continue
		}
		standard := rates.clone()
		standard.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
			if s == Standard && u.Token() {
				rates.Set(u, Service(i), tier, ratio.of(rate))
			}
			return true
		})
	}
	return nil
}

// setFields sets rates from fields such as operators write, but for those whose units
// have rates in the set that is given.
func setFields(rates *Rates, fields map[string]string, unless *Rates) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		units, parse, err := fieldOf(name)
		if err != nil {
			return err
		}
		rate, err := parse(fields[name])
		if err != nil {
			return err
		}
		for _, u := range units {
			if unless == nil || !unless.has(u) {
				rates.Set(u, Standard, 0, rate)
			}
		}
	}
	return nil
}

// fieldOf is what a field sets: one of an operator's price, or a unit that is not of
// tokens by its own name.
func fieldOf(name string) ([]Unit, func(string) (money.Rate, error), error) {
	for _, f := range &ownFields {
		if f.name == name && f.per == perMillion {
			return f.units, money.ParseRatePerMillion, nil
		}
		if f.name == name {
			return f.units, money.ParseRate, nil
		}
	}
	if u, ok := unitOf(name); ok && !u.Token() {
		return []Unit{u}, money.ParseRate, nil
	}
	return nil, nil, fmt.Errorf("no such field: %q", name)
}

// unitOf is the unit of a name.
func unitOf(name string) (Unit, bool) {
	i := slices.Index(unitNames[:], name)
	return Unit(max(0, i)), i >= 0
}

// parseRatio reads a fraction, such as "11/10", or a whole number.
func parseRatio(s string) (Ratio, error) {
	num, den, fraction := strings.Cut(s, "/")
	if !fraction {
		den = "1"
	}
	n, errN := strconv.ParseUint(num, 10, 16)
	d, errD := strconv.ParseUint(den, 10, 16)
	if err := errors.Join(errN, errD); err != nil || n == 0 || d == 0 {
		return Ratio{}, fmt.Errorf("no fraction: %q", s)
	}
	return Ratio{Num: uint32(n), Den: uint32(d)}, nil
}

// of is the multiple of a rate, rounded to a femtodollar. The ratio must be set.
func (m Ratio) of(rate money.Rate) money.Rate {
	return mulDiv(rate, money.Rate(m.Num), money.Rate(m.Den))
}
