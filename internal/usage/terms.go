package usage

import "github.com/llmlimits/caddy-llm-limits/internal/money"

// Terms are what a response says of how the call is billed, in the provider's own
// words. Empty where it says nothing.
type Terms struct {
	// ServiceTier is the tier that served, such as "default", "flex" or "priority";
	// of Gemini the traffic type, such as "ON_DEMAND_FLEX".
	ServiceTier string
	// Speed is the mode that served, such as Anthropic's "fast".
	Speed string
	// Geo is where it was served, such as "us".
	Geo string
	// SearchContext is how much a search of the web has read: "low", "medium" or "high".
	SearchContext string
	// Cost is what the provider says that the call cost, in the fields that vendors
	// document; it counts if CostKnown is set.
	Cost      money.USD
	CostKnown bool
	// CostField is where it stood in the usage object: "cost_in_usd_ticks" (xAI), "cost"
	// (OpenRouter, Perplexity), "cost.total_cost" (Perplexity) or "estimated_cost"
	// (DeepInfra). Any server can write any of them: a cost is to be believed only of
	// the vendor whose field it is.
	CostField string
	// CostFree is set where a reported cost of zero is meant: the customer's own key
	// was used, or the model is a free one.
	CostFree bool
}

// Hints are what a request says that decides its price and stands nowhere in the
// response.
type Hints struct {
	// ServiceTier and Speed are asked for; what served is in Terms.
	ServiceTier string
	Speed       string
	// Characters are of the text to be spoken, in Unicode code points.
	Characters int64
	// ImageSize, such as "1024x1024", and ImageQuality, such as "hd", are of the
	// images to be made.
	ImageSize    string
	ImageQuality string
	// SearchContext is how much a search of the web reads: "low", "medium" or "high".
	SearchContext string
}
