package prices

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// genAIPrice is where a price of genai-prices goes.
type genAIPrice struct {
	parse func(string) (money.Rate, error)
	units []Unit
}

// genAIUnits are the prices that are understood. A model with another one is left out:
// it would be sold too cheap without.
var genAIUnits = map[string]genAIPrice{
	"input_mtok":                      {money.ParseRatePerMillion, []Unit{Input}},
	"cache_read_mtok":                 {money.ParseRatePerMillion, []Unit{CacheRead}},
	"cache_write_mtok":                {money.ParseRatePerMillion, []Unit{CacheWrite5m}},
	"cache_write_1h_mtok":             {money.ParseRatePerMillion, []Unit{CacheWrite1h}},
	"output_mtok":                     {money.ParseRatePerMillion, []Unit{Output}},
	"output_reasoning_mtok":           {money.ParseRatePerMillion, []Unit{Reasoning}},
	"output_citation_mtok":            {money.ParseRatePerMillion, []Unit{Citation}},
	"input_audio_mtok":                {money.ParseRatePerMillion, []Unit{AudioIn}},
	"cache_audio_read_mtok":           {money.ParseRatePerMillion, []Unit{AudioCached}},
	"cache_audio_write_mtok":          {money.ParseRatePerMillion, []Unit{AudioWrite}},
	"output_audio_mtok":               {money.ParseRatePerMillion, []Unit{AudioOut}},
	"input_image_mtok":                {money.ParseRatePerMillion, []Unit{ImageIn}},
	"cache_image_read_mtok":           {money.ParseRatePerMillion, []Unit{ImageCached}},
	"output_image_mtok":               {money.ParseRatePerMillion, []Unit{ImageOut}},
	"input_video_mtok":                {money.ParseRatePerMillion, []Unit{VideoIn}},
	"output_video_mtok":               {money.ParseRatePerMillion, []Unit{VideoOut}},
	"input_mchars":                    {money.ParseRatePerMillion, []Unit{CharacterIn}},
	"audio_hours":                     {parseRatePerHour, []Unit{SecondIn}},
	"input_audio_hours":               {parseRatePerHour, []Unit{SecondIn}},
	"input_document_kpages":           {money.ParseRatePerThousand, []Unit{Page}},
	"input_annotated_document_kpages": {money.ParseRatePerThousand, []Unit{AnnotatedPage}},
	"requests_kcount":                 {money.ParseRatePerThousand, []Unit{Request}},
	"web_searches_kcount":             {money.ParseRatePerThousand, []Unit{SearchLow, SearchMedium, SearchHigh}},
	"storage_searches_kcount":         {money.ParseRatePerThousand, []Unit{FileSearch}},
	"code_executions_kcount":          {money.ParseRatePerThousand, []Unit{CodeSession}},
}

// parseRatePerHour reads a price in dollars per hour as a rate per second.
func parseRatePerHour(s string) (money.Rate, error) {
	const seconds = 3600
	r, err := money.ParseRate(s)
	return (r + seconds/2) / seconds, err
}

// condition is one of the prices of a model: in force from a day on, or between two
// hours of every day, or always.
type condition struct {
	from   time.Time
	window *Window
	prices gjson.Result
}

// genAIRows reads the prices of a model: a row for each span of time, without key and
// provider. None if the model has no prices at all.
func genAIRows(m gjson.Result) ([]*Row, error) {
	prices := m.Get("prices")
	if prices.IsObject() {
		r := &Row{}
		if err := genAIRates(r, prices); err != nil {
			return nil, err
		}
		if !r.priced() {
			return nil, nil
		}
		return []*Row{r}, nil
	}
	if !prices.IsArray() {
		return nil, errors.New("no prices")
	}
	conditions, starts, err := genAIConditions(prices)
	if err != nil {
		return nil, err
	}
	rows := make([]*Row, 0, len(starts))
	for i, from := range starts {
		r := &Row{From: from}
		if i+1 < len(starts) {
			r.Until = starts[i+1]
		}
		if err := genAISpan(r, conditions); err != nil {
			return nil, err
		}
		if !r.priced() { // a span without prices would be covered by no row
			return nil, fmt.Errorf("no prices from %s on", from.Format(time.DateOnly))
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// genAIConditions reads a list of conditional prices, and the moments at which another
// of them may begin to apply: ascending, the first one zero.
func genAIConditions(list gjson.Result) (conditions []condition, starts []time.Time, err error) {
	starts = []time.Time{{}}
	for _, entry := range list.Array() {
		c := condition{prices: entry.Get("prices")}
		if !c.prices.IsObject() {
			return nil, nil, errors.New("conditional prices without prices")
		}
		on := entry.Get("constraint")
		switch {
		case !on.Exists() || on.Type == gjson.Null:
		case on.Get("start_date").Exists():
			if c.from, err = time.Parse(time.DateOnly, on.Get("start_date").String()); err != nil {
				return nil, nil, fmt.Errorf("reading a start date: %w", err)
			}
			starts = append(starts, c.from)
		case on.Get("start_time").Exists() && on.Get("end_time").Exists():
			w := &Window{}
			if w.From, err = minuteOfDay(on.Get("start_time").String()); err != nil {
				return nil, nil, err
			}
			if w.Until, err = minuteOfDay(on.Get("end_time").String()); err != nil {
				return nil, nil, err
			}
			if w.From == w.Until {
				return nil, nil, errors.New("a time of day that is no span")
			}
			c.window = w
		default:
			return nil, nil, fmt.Errorf("an unknown constraint: %s", on.Raw)
		}
		conditions = append(conditions, c)
	}
	if len(conditions) == 0 {
		return nil, nil, errors.New("no prices")
	}
	slices.SortFunc(starts, time.Time.Compare)
	return conditions, slices.CompactFunc(starts, time.Time.Equal), nil
}

// genAISpan fills in the rates of a row from r.From on: those of the last condition
// that holds, or of the first if none does, and before them those of certain hours.
func genAISpan(r *Row, conditions []condition) error {
	base := conditions[0]
	var timed []condition
	for _, c := range slices.Backward(conditions) {
		if c.window != nil {
			timed = append(timed, c)
			continue
		}
		if !c.from.After(r.From) {
			base = c
			break
		}
	}
	if base.window != nil {
		return errors.New("prices for some hours of the day only")
	}
	if err := genAIRates(r, base.prices); err != nil {
		return err
	}
	for _, c := range timed {
		var at Row
		if err := genAIRates(&at, c.prices); err != nil {
			return err
		}
		if len(at.Tiers) > 0 || !slices.Equal(at.Rates.slots, r.Rates.slots) {
			return errors.New("prices for some hours that are for other things than those for the rest")
		}
		same := slices.IndexFunc(r.Timed, func(o Timed) bool {
			return slices.Equal(o.Rates.rates, at.Rates.rates)
		})
		if same >= 0 && same == len(r.Timed)-1 {
			r.Timed[same].Windows = append(r.Timed[same].Windows, *c.window)
			continue
		}
		r.Timed = append(r.Timed, Timed{Windows: []Window{*c.window}, Rates: at.Rates})
	}
	return nil
}

// minuteOfDay reads a time of day with an offset, such as 16:30:00Z, as minutes since
// 00:00 UTC.
func minuteOfDay(s string) (int16, error) {
	t, err := time.Parse("15:04:05Z07:00", s)
	if err != nil {
		return 0, fmt.Errorf("reading a time of day: %w", err)
	}
	t = t.UTC()
	if t.Second() != 0 || t.Nanosecond() != 0 {
		return 0, fmt.Errorf("a time of day that is no whole minute: %q", s)
	}
	return int16(t.Hour()*60 + t.Minute()), nil
}

// genAIRates reads an object of prices into a row.
func genAIRates(r *Row, prices gjson.Result) (err error) {
	var tiers []Tier
	prices.ForEach(func(_, v gjson.Result) bool {
		v.Get("tiers").ForEach(func(_, t gjson.Result) bool {
			var tier Tier
			if tier, err = tierFrom(t.Get("start")); err != nil {
				return false
			}
			if !slices.Contains(tiers, tier) {
				tiers = append(tiers, tier)
			}
			return true
		})
		return err == nil
	})
	if err != nil {
		return err
	}
	if len(tiers) > MaxTiers {
		return fmt.Errorf("%d tiers, more than %d", len(tiers), MaxTiers)
	}
	slices.SortFunc(tiers, func(a, b Tier) int { return int(a.Above - b.Above) })
	r.Tiers = tiers
	prices.ForEach(func(key, v gjson.Result) bool {
		if v.Type == gjson.Null {
			return true
		}
		price, known := genAIUnits[key.String()]
		if !known {
			err = fmt.Errorf("a price of an unknown kind: %q", key.String())
			return false
		}
		err = genAIRate(r, price, v)
		return err == nil
	})
	return err
}

// genAIRate reads one price: a number, or a base and tiers. A rate that has tiers has
// one in every tier of the row.
func genAIRate(r *Row, price genAIPrice, v gjson.Result) error {
	base := v
	if v.IsObject() {
		base = v.Get("base")
	}
	rate, err := rateOf(base, price)
	if err != nil {
		return err
	}
	set := func(tier int, rate money.Rate) {
		for _, u := range price.units {
			r.Rates.Set(u, Standard, tier, rate)
		}
	}
	set(0, rate)
	if !v.IsObject() {
		return nil
	}
	steps := make(map[Tier]money.Rate)
	for _, t := range v.Get("tiers").Array() {
		tier, err := tierFrom(t.Get("start"))
		if err != nil {
			return err
		}
		if steps[tier], err = rateOf(t.Get("price"), price); err != nil {
			return err
		}
	}
	for i, tier := range r.Tiers {
		if next, ok := steps[tier]; ok {
			rate = next
		}
		set(i+1, rate)
	}
	return nil
}

func rateOf(v gjson.Result, price genAIPrice) (money.Rate, error) {
	text := v.Raw
	if v.Type == gjson.String {
		text = v.Str
	}
	if v.Type != gjson.Number && v.Type != gjson.String {
		return 0, fmt.Errorf("a price that is no number: %.40s", v.Raw)
	}
	return price.parse(text)
}

// openAITier is where OpenAI's prices for long prompts begin: its price lists disagree
// on a prompt of just so many tokens, which the pages of the models count as short.
const openAITier = 272_000

// tierFrom reads the length after which a tier begins. A number such as 199,999 says
// that a prompt of 200,000 is in the tier already.
func tierFrom(v gjson.Result) (Tier, error) {
	start, err := strconv.ParseInt(strings.TrimSuffix(v.Raw, ".0"), 10, 64)
	if err != nil || start < 0 || start >= 1<<40 {
		return Tier{}, fmt.Errorf("a tier that begins at %.40q", v.Raw)
	}
	if start%1000 == 999 {
		return Tier{Above: start + 1, Inclusive: start+1 != openAITier}, nil
	}
	return Tier{Above: start}, nil
}
