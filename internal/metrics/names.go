package metrics

import "github.com/prometheus/client_golang/prometheus"

// metric describes one metric. The table below is the one place that names them; the
// list in docs/metrics.md is written from it.
type metric struct {
	name   string
	kind   kind
	help   string
	labels []string
}

// kind is the type of a metric, in Prometheus's words.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// The labels.
const (
	labelConsumer = "consumer"
	labelModel    = "model"
	labelAPI      = "api"
	labelStatus   = "status"
	labelKind     = "kind"
	labelLimiter  = "limiter"
	labelRule     = "rule"
	labelShadow   = "shadow"
	labelPercent  = "percent"
	labelReason   = "reason"
	labelBreaker  = "breaker"
	labelState    = "state"
	labelSource   = "source"
	labelOp       = "op"
	labelStore    = "store"
)

var (
	requestsTotal = metric{
		"llm_requests_total", counter,
		"Calls that a limiter has seen, when they have ended. The status is the class of the answer, `refused` where a limiter answered in the provider's place, or `none` where nothing was answered.",
		[]string{labelConsumer, labelAPI, labelStatus},
	}
	tokensTotal = metric{
		"llm_tokens_total", counter,
		"Tokens used. Kind `input` includes `cache_read` and `cache_write`, and `output` includes `reasoning`: do not add them up.",
		[]string{labelConsumer, labelModel, labelKind},
	}
	costTotal = metric{
		"llm_cost_usd_total", counter,
		"What calls cost, in US dollars. It is summed up in whole picodollars and rounded for display only.",
		[]string{labelConsumer, labelModel},
	}
	unpricedTotal = metric{
		"llm_cost_unpriced_total", counter,
		"Calls that used something and for which no price was known.",
		[]string{labelModel},
	}
	approximateTotal = metric{
		"llm_cost_approximate_total", counter,
		"Calls whose cost rests on a rate that was derived, or on a row that is not the model's very own. The access log names the row, as `price_key`.",
		[]string{labelModel},
	}
	tableAsOf = metric{
		"llm_cost_table_as_of_timestamp_seconds", gauge,
		"The day that the price table in force was made, in seconds since 1970. Absent while there is none.",
		nil,
	}
	activatedAfter = metric{
		"llm_cost_price_activated_after_asof", gauge,
		"Prices in force whose day of validity began after the table was made: they were announced, not seen.",
		nil,
	}
	refusalsTotal = metric{
		"llm_refusals_total", counter,
		"Calls that a limiter refused, by the rule that its answer names; without a rule it is the code of the error, such as `endpoint_not_metered`. With shadow `true` the call went on.",
		[]string{labelLimiter, labelRule, labelShadow},
	}
	thresholdsTotal = metric{
		"llm_thresholds_total", counter,
		"How often a rule's use came to 80 or 100 percent of its limit, at most once each in a window. The consumer is empty for a counter that all share. Only rules with a window of an hour or more.",
		[]string{labelConsumer, labelLimiter, labelRule, labelPercent},
	}
	retriesTotal = metric{
		"llm_retries_total", counter,
		"What `llm_retry` did with calls: `again` and `fallback` are further attempts, `budget` one that was not made lest they become too many, and `given_up` a call of which the client got an error in the end.",
		[]string{labelReason},
	}
	breakerChangesTotal = metric{
		"llm_breaker_changes_total", counter,
		"How often a breaker of `llm_retry` came to a state: `open`, `half_open` (one call at a time tries) or `closed`. `route` is the breaker of a route that all share, `consumer` one that stops a single consumer.",
		[]string{labelBreaker, labelState},
	}
	authFailuresTotal = metric{
		"llm_auth_failures_total", counter,
		"Requests that `api_key_auth` refused, by what was wrong with the key, or with the model it may use.",
		[]string{labelReason},
	}
	keysKnown = metric{
		"llm_keys", gauge,
		"API keys of `keys_store` that this process knows, by the kind of their store. Absent without `keys_store`.",
		[]string{labelStore},
	}
	keysAge = metric{
		"llm_keys_age_seconds", gauge,
		"How long ago this process last knew all keys of `keys_store` as the store had them: usually less than a second. A key that was revoked elsewhere since then still works.",
		[]string{labelStore},
	}
	keysRereads = metric{
		"llm_keys_rereads_total", counter,
		"How often all keys of `keys_store` were read anew, since the store had lost changes.",
		nil,
	}
	expectedTotal = metric{
		"llm_estimate_expected_tokens_total", counter,
		"Tokens that calls were expected to use before they began, of those that reported their use in the end.",
		[]string{labelModel, labelKind},
	}
	reportedTotal = metric{
		"llm_estimate_reported_tokens_total", counter,
		"Tokens that the same calls reported. Expected over reported is how far estimates are off.",
		[]string{labelModel, labelKind},
	}
	sourcesTotal = metric{
		"llm_usage_source_total", counter,
		"Calls that reached a provider, by where their use is known from: `reported`, `estimated`, or `none` where nothing was used.",
		[]string{labelSource},
	}
	storeSeconds = metric{
		"llm_store_seconds", histogram,
		"How long operations of the store took, in seconds.",
		[]string{labelOp},
	}
	storeErrorsTotal = metric{
		"llm_store_errors_total", counter,
		"Operations of the store that went wrong: `unavailable`, `full` (no room for another consumer), or `other`.",
		[]string{labelOp, labelReason},
	}
	storeOutage = metric{
		"llm_store_outage", gauge,
		"1 while the store is taken to be away. Absent for a store that cannot be.",
		nil,
	}
	storePending = metric{
		"llm_store_pending_charges", gauge,
		"Charges that wait to be handed to the store. Absent for a store that takes them at once.",
		nil,
	}
	storeEntities = metric{
		"llm_store_entities", gauge,
		"Consumers that are counted in this process, each once in every instance. Absent for a store that counts elsewhere.",
		nil,
	}
	holds = metric{
		"llm_holds", gauge,
		"Reservations of calls under way, each instance of a call counted once.",
		nil,
	}
	drains = metric{
		"llm_drains", gauge,
		"Calls that are read on though their client has gone.",
		nil,
	}
	bodyBytes = metric{
		"llm_body_bytes", gauge,
		"Request bodies held in memory, in bytes. `max_buffered` bounds it.",
		nil,
	}
)

// all lists the metrics in the order of their documentation.
var all = []*metric{
	&requestsTotal, &tokensTotal, &costTotal, &unpricedTotal, &approximateTotal, &tableAsOf, &activatedAfter,
	&refusalsTotal, &thresholdsTotal, &retriesTotal, &breakerChangesTotal, &authFailuresTotal,
	&keysKnown, &keysAge, &keysRereads,
	&expectedTotal, &reportedTotal, &sourcesTotal,
	&storeSeconds, &storeErrorsTotal, &storeOutage, &storePending, &storeEntities,
	&holds, &drains, &bodyBytes,
}

func (m *metric) counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name, Help: m.help}, m.labels)
}

func (m *metric) desc() *prometheus.Desc {
	return prometheus.NewDesc(m.name, m.help, m.labels, nil)
}
