package main

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/bench/server"
)

// Site is a gateway: what it does before it proxies.
type Site string

// Sites, each with what stands before reverse_proxy.
const (
	Plain Site = ""
	// Keys tells callers apart.
	Keys Site = "{{keys}}"
	// Requests is one limit of requests per consumer, on top.
	Requests Site = Keys + `
	token_limit requests {
		consumer_based
		limit 100M requests per minute
	}`
	// RateLimit is the same limit by caddy-ratelimit, behind the same keys.
	RateLimit Site = Keys + `
	rate_limit {
		zone requests {
			key {http.vars.x-wso2-application-id}
			window 1m
			events 100000
		}
	}`
	// Tokens is one limit of tokens per consumer, for which bodies and answers are read.
	Tokens Site = Keys + `
	token_limit tokens {
		consumer_based
		limit 1000000M tokens per hour
	}`
	// Full is all of it: keys, limits of requests, tokens and dollars for each consumer and
	// of tokens and dollars for all of them, prices, metrics and log fields.
	Full Site = Keys + `
	token_limit consumer-tokens {
		consumer_based
		limit 100M requests per minute
		limit 1000000M tokens per hour
	}
	token_limit backend-tokens {
		limit 1000000M tokens per day
	}
	llm_cost
	cost_limit consumer-cost {
		consumer_based
		limit $1000000 per day
	}
	cost_limit backend-cost {
		limit $1000000 per month
	}`
)

// Options are what a site's Caddyfile says besides.
type Options struct {
	// Ends is the directive that all calls come to in the end, such as reverse_proxy.
	Ends string
	// Redis is an address; empty where counts are kept in memory.
	Redis string
	// KeysFile is the path of a file of keys; empty for the one key of consumer 0.
	KeysFile string
	// Consumers is how many there are.
	Consumers int
	// AccessLog has every call written to a log, which is thrown away.
	AccessLog bool
}

// Caddyfile is the config of a site.
func (s Site) Caddyfile(o *Options) string {
	store := fmt.Sprintf("memory {\n\t\t\tmax_entities %d\n\t\t}", 4*max(o.Consumers, 1000))
	if o.Redis != "" {
		store = "redis {\n\t\t\taddress " + o.Redis + "\n\t\t}"
	}
	llm := ""
	if s != Plain {
		llm = "\tllm {\n\t\tstore " + store + "\n\t}\n"
	}
	order := ""
	if s == RateLimit { // its own place is before the keys
		order = "\torder rate_limit before reverse_proxy\n"
	}
	keys := fmt.Sprintf("api_key_auth {\n\t\tkey bench sha256:%x {\n\t\t\tapplication bench\n\t\t}\n\t}", sha256.Sum256([]byte(server.Key(0))))
	if o.KeysFile != "" {
		keys = "api_key_auth {\n\t\tkeys_file " + o.KeysFile + "\n\t}"
	}
	log := ""
	if o.AccessLog {
		log = "\tlog {\n\t\toutput discard\n\t}\n"
	}
	site := string(s)
	if o.Consumers > server.MostKeys {
		site = strings.ReplaceAll(site, "consumer_based", "key {header."+server.ConsumerHeader+"}")
	}
	seed := ""
	if o.Consumers > 1 {
		seed = "\trespond " + server.SeedPath + " 200\n"
	}
	return "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tlog {\n\t\toutput discard\n\t\tlevel WARN\n\t}\n" + order + llm + "}\n\n" +
		"http://:" + server.Port + " {\n\tbind 127.0.0.1\n" + log +
		"\t" + strings.ReplaceAll(site, string(Keys), keys) + "\n" + seed +
		"\t" + o.Ends + "\n}\n"
}
