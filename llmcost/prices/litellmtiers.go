package prices

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// tiered reads LiteLLM's list of tiers, each with its prices: by a "range" of prompt
// tokens (start, end], where above the last range the last holds, or by the range of
// results that a search may return, of which the dearest is taken.
func (r *liteLLMRow) tiered(list gjson.Result) (err error) {
	if !list.Exists() || list.Type == gjson.Null {
		return nil
	}
	if !list.IsArray() {
		return errors.New("no list")
	}
	var query money.Rate
	byResults := false
	list.ForEach(func(_, tier gjson.Result) bool {
		if tier.Get("max_results_range").Exists() {
			byResults = true
			rate, e := money.ParseRate(numeral(tier.Get("input_cost_per_query")))
			query, err = max(query, rate), e
			return err == nil
		}
		var start int64
		if start, err = parseTokens(numeral(tier.Get("range.0"))); err != nil {
			return false
		}
		tier.ForEach(func(key, v gjson.Result) bool {
			err = r.price(key.Str, v, start)
			return err == nil
		})
		return err == nil
	})
	if byResults && err == nil {
		r.prices = append(r.prices, liteLLMPrice{field: field{unit: Query}, rate: query})
	}
	return err
}

// offPeak reads the hours with other prices: "hours_utc" such as "16:30-00:30", or a list
// of them, with "weekdays", and "windows" of the same.
func (r *liteLLMRow) offPeak(block gjson.Result) error {
	if !block.Exists() || block.Type == gjson.Null {
		return nil
	}
	if !block.IsObject() {
		return errors.New("no object")
	}
	var o Timed
	if zone := block.Get("weekday_timezone").String(); zone != "" && zone != "UTC" {
		location, err := time.LoadLocation(zone)
		if err != nil {
			return fmt.Errorf("weekday_timezone %q is unknown", zone)
		}
		o.Zone = location
	}
	err := o.windows(block)
	block.Get("windows").ForEach(func(_, w gjson.Result) bool {
		if err == nil {
			err = o.windows(w)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	off := &liteLLMRow{}
	block.ForEach(func(key, v gjson.Result) bool {
		err = off.price(key.Str, v, 0)
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, p := range off.prices {
		if p.above > 0 {
			return errors.New("tiers within hours are not known")
		}
	}
	if err := off.settle(false); err != nil {
		return err
	}
	if len(o.Windows) == 0 || off.row.Rates.Len() == 0 {
		return nil
	}
	o.Rates = off.row.Rates
	r.row.Timed = []Timed{o}
	return nil
}

// windows adds the windows of one object.
func (o *Timed) windows(v gjson.Result) error {
	hours := v.Get("hours_utc")
	if !hours.Exists() {
		return nil
	}
	days, err := daysOf(v.Get("weekdays"))
	if err != nil {
		return err
	}
	for _, h := range hours.Array() {
		from, until, ok := strings.Cut(h.String(), "-")
		a, errA := clock(from)
		b, errB := clock(until)
		if !ok || errA != nil || errB != nil {
			return fmt.Errorf("hours_utc %q: write it as 16:30-00:30", h.String())
		}
		o.Windows = append(o.Windows, Window{a, b, days})
	}
	return nil
}

// clock reads a time of day, in minutes; 24:00 is 0.
func clock(s string) (int16, error) {
	hour, minute, ok := strings.Cut(strings.TrimSpace(s), ":")
	h, errH := strconv.ParseUint(hour, 10, 8)
	m, errM := strconv.ParseUint(minute, 10, 8)
	if !ok || errH != nil || errM != nil || h > 24 || m > 59 || h == 24 && m > 0 {
		return 0, fmt.Errorf("%q is no time of day", s)
	}
	return int16(h%24*60 + m), nil
}

// daysOf reads a list of weekdays: 1 for Monday to 7 for Sunday, or their names.
func daysOf(list gjson.Result) (Days, error) {
	if !list.Exists() || list.Type == gjson.Null {
		return 0, nil
	}
	var days Days
	for _, v := range list.Array() {
		day, ok := dayOf(v)
		if !ok {
			return 0, fmt.Errorf("weekday %s is unknown", v.Raw)
		}
		days |= 1 << day
	}
	if days == 0 {
		return 0, errors.New("no weekday is named")
	}
	return days, nil
}

func dayOf(v gjson.Result) (time.Weekday, bool) {
	if v.Type == gjson.Number {
		n, err := strconv.Atoi(v.Raw)
		return time.Weekday(n % 7), err == nil && n >= 1 && n <= 7
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		name := day.String()
		if strings.EqualFold(v.Str, name) || strings.EqualFold(v.Str, name[:3]) {
			return day, true
		}
	}
	return 0, false
}
