package llmlimits

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// here marks the line that an error is to name.
const here = "#!"

// wrong is a Caddyfile's line that is wrong, among others: the lines within a directive,
// or of its own. What is to be found in the error are the word and the rule.
type wrong struct {
	name, lines string
	want        []string
}

// hash is that of a key.
const hash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

var wrongLines = map[string][]wrong{
	"api_key_auth {\n@\n}": {
		{"an unknown word", "keys_file f\nkeystore x #!\nquery k", []string{"'keystore'", "unrecognized"}},
		{"keys_file of two", "optional\nkeys_file a b #!\nquery k", []string{"keys_file", "one argument"}},
		{"keys_file twice", "keys_file a\nquery k\nkeys_file b #!\nquery l", []string{"keys_file already"}},
		{"keys_store with a word", "keys_store redis #!\nquery k", []string{"keys_store takes no arguments"}},
		{"a key cache without a store", "keys_file f\nkey_cache 1m #!\nquery k\nquery l", []string{"key_cache", "keys_store"}},
		{"a key cache that is no duration", "keys_store\nkey_cache long #!\nquery k", []string{`"long"`, "key_cache must be a duration"}},
		{"a key without a hash", "keys_file f\nkey a #!\nquery k", []string{"key takes an id and the key's hash"}},
		{"a hash that is none, with a block", "key a md5:1 { #!\ngroup x\nmodels y\n}\nquery k", []string{"hash must be"}},
		{"an id twice", "key a " + hash + " {\ngroup g\n}\nkey a {env.B} { #!\ngroup h\n}\nquery k", []string{`id is already`}},
		{"a word of a key", "key a " + hash + " {\ngroup g\nrate 5 #!\nmodels x\n}", []string{"'rate'", "unrecognized"}},
		{"an application that is reserved", "key a " + hash + " {\ngroup g\napplication default #!\nmodels x\n}", []string{`"default"`, "reserved"}},
		{"a group like a path", "key a " + hash + " {\ngroup /g #!\nmodels x\n}\nquery k", []string{`group must not start with "/"`}},
		{"models of none", "key a " + hash + " {\nmodels #!\ngroup g\n}\nquery k", []string{"models must not be empty"}},
		{"a glob twice", "key a " + hash + " {\nmodels x y x #!\ngroup g\n}\nquery k", []string{`glob "x"`, "twice"}},
		{"a date that is none", "key a " + hash + " {\nexpires soon #!\ngroup g\n}\nquery k", []string{`"soon"`, "must be a date"}},
		{"a header that is none", "keys_file f\nheader X:Y #!\nquery k", []string{`"X:Y"`, "no header name"}},
		{"a header twice", "keys_file f\nheader X-A\nheader x-a #!\nquery k", []string{`"X-A"`, "twice"}},
		{"a parameter twice", "query k\nquery k #!\nkeys_file f", []string{`"k"`, "twice"}},
		{"a word of optional", "keys_file f\noptional {\ngroup g\napplication x #!\nmodels y\n}\nquery k", []string{"'application'", "unrecognized"}},
		{"optional with a word", "keys_file f\noptional guests #!\nquery k", []string{"argument"}},
		{"optional twice", "keys_file f\noptional {\ngroup g\n}\noptional { #!\ngroup h\n}\nquery k", []string{"optional already"}},
	},
	"@": {
		{"a key for an argument", "api_key_auth sk-secret { #!\nkeys_file f\nquery k\n}", []string{"takes no arguments"}},
		{"no key anywhere", "api_key_auth { #!\nquery k\noptional\n}", []string{"there must be a key, a keys_file or keys_store"}},
		{"a name of llm_cost", "llm_cost mine { #!\nprovider openai\n}", []string{"'mine'", "no name"}},
		{"a name of llm_retry", "llm_retry mine { #!\nattempts 2\n}", []string{"'mine'", "no name"}},
		{"llm_usage at no path", "llm_usage usage { #!\ninstances a\n}", []string{`"usage"`, "does not start with /"}},
		{"llm_usage at two", "llm_usage /a /b { #!\ninstances a\n}", []string{"'/b'", "one path"}},
		{"no limit", "token_limit a { #!\nconsumer_based\nerrors\n}", []string{"at least one limit"}},
		{"no limit in dollars", "cost_limit a { #!\nconsumer_based\nerrors\n}", []string{"at least one limit"}},
		{"a name like a path", "token_limit * /a { #!\nlimit 1 requests per day\nerrors\n}", []string{`"/a"`, "must not start with"}},
		{"two names", "cost_limit a b { #!\nlimit $1 per day\nerrors\n}", []string{"argument"}},
		{"a name twice", "token_limit a {\nlimit 1 requests per day\n}\ncost_limit a { #!\nlimit $1 per day\nerrors\n}", []string{"'a'", "twice"}},
		{"a block without sides", "llm_limits a { #!\n}", []string{"`consumer` or a `backend`"}},
		{"two blocks of a name", "llm_limits a {\nconsumer {\nlimit 1 requests per day\n}\n}\nllm_limits a { #!\nbackend {\nlimit 1 requests per day\n}\n}", []string{"'a'", "name of its own"}},
		{"a block's name like a path", "llm_limits * /a { #!\nconsumer {\nerrors\nlimit 1 requests per day\n}\n}", []string{`/a`, "must not start with"}},
	},
	"llm_cost {\n@\n}": {
		{"an unknown word", "provider openai\ncurrency EUR #!\nalias a b", []string{"'currency'", "unrecognized"}},
		{"a provider of two", "provider a b #!\nalias a b", []string{"argument"}},
		{"a provider twice", "provider openai\nalias a b\nprovider azure #!\nalias c d", []string{"provider already"}},
		{"a provider that is a model", "provider azure/gpt-4o #!\nalias a b\nalias c d", []string{`"azure/gpt-4o"`, "not the name of one"}},
		{"prices of nothing", "prices #!\nalias a b", []string{"argument"}},
		{"a table twice", "prices a.json\nprices a.json #!\nalias a b", []string{`"a.json"`, "twice"}},
		{"a price of nothing", "price { #!\ninput 1\n}\nalias a b", []string{"argument"}},
		{"a price without rates", "price m { #!\n}\nalias a b", []string{`"m"`, "needs a rate"}},
		{"an unknown rate", "price m {\ninput 1\nprompt 1 #!\noutput 2\n}", []string{`"prompt"`, "unknown field"}},
		{"a rate that is no number", "price m {\ninput much #!\noutput 1\n}", []string{`"much"`}},
		{"a rate of two", "price m {\ninput 1 USD #!\noutput 1\n}", []string{"argument"}},
		{"a rate twice", "price m {\ninput 1\noutput 1\ninput 1 #!\ncache_read 1\n}", []string{"input already"}},
		{"a price twice", "price m {\ninput 1\n}\nprice M { #!\ninput 2\noutput 3\n}\nalias a b", []string{`"M"`, "twice"}},
		{"a glob that is none", "alias a b\nprice \"\" { #!\ninput 1\n}\nalias c d", []string{"price of no model"}},
		{"an alias of one", "alias m #!\nprovider openai", []string{"argument"}},
		{"an alias twice", "alias m a\nprovider openai\nalias m b #!\nalias n o", []string{"'m'", "already"}},
		{"an alias twice but for case", "alias m a\nalias M b #!\nprovider openai\nalias n o", []string{`"M"`, "twice"}},
		{"an alias of nothing", "alias \"\" a #!\nprovider openai\nalias n o", []string{"alias"}},
		{"an unknown policy", "unknown_model guess #!\nprovider openai\nalias n o", []string{`"guess"`, "none of"}},
		{"a default that is no price", "unknown_model default 5 x #!\nprovider openai\nalias n o", []string{`"x"`}},
		{"prices of a policy that has none", "unknown_model zero 1 2 #!\nprovider openai", []string{"unknown_model takes"}},
		{"a policy twice", "unknown_model zero\nprovider openai\nunknown_model deny #!\nalias n o", []string{"unknown_model already"}},
	},
	"llm_retry {\n@\n}": {
		{"an unknown word", "attempts 2\nretries 3 #!\nmax_wait 1s", []string{"'retries'", "unrecognized"}},
		{"a word twice", "attempts 2\nmax_wait 1s\nattempts 3 #!\non 429", []string{"attempts already"}},
		{"no attempt", "max_wait 1s\nattempts 0 #!\non 429", []string{"'0'", "from 1 to 10"}},
		{"too many attempts", "max_wait 1s\nattempts 11 #!\non 429", []string{"11", "from 1 to 10"}},
		{"a class of statuses", "attempts 2\non 429 5xx #!\nmax_wait 1s", []string{"'5xx'", "not a status"}},
		{"a status that is no failure", "attempts 2\non 200 #!\nmax_wait 1s", []string{"200", "from 400 to 599"}},
		{"no wait", "attempts 2\nmax_wait 0s #!\non 429", []string{"0s", "greater than zero"}},
		{"half a breaker", "attempts 2\nbreaker 5 #!\non 429", []string{"breaker takes"}},
		{"a breaker of a moment", "attempts 2\nbreaker 5 per 10ms #!\non 429", []string{"10ms", "shorter than a second"}},
		{"a fallback to the same", "attempts 2\nfallback { #!\n}\non 429", []string{"needs a model or directives"}},
		{"a fallback to two", "attempts 2\nfallback a b #!\non 429", []string{"argument"}},
		{"a limiter of a fallback", "fallback m {\nllm_cost {\nprovider openai\ncurrency EUR #!\nalias a b\n}\nrespond ok\n}", []string{"'currency'", "unrecognized"}},
	},
	"llm_usage {\n@\n}": {
		{"an unknown word", "instances a\nlimits #!", []string{"'limits'", "unrecognized"}},
		{"no instance", "instances #!", []string{"argument"}},
		{"an instance twice", "instances a b a #!", []string{`"a"`, "twice"}},
		{"instances twice", "instances a\ninstances b #!", []string{"instances already"}},
	},
	"token_limit t {\n@\n}": limiterLines("5 tokens per hour", "tokens per hour"),
	"cost_limit t {\n@\n}":  limiterLines("$5 per hour", "usd per hour"),
	"llm_limits t {\nconsumer {\n@\n}\n}": append(limiterLines("5 tokens per hour", "tokens per hour"),
		wrong{"a key", "limit 1 requests per day\nkey {http.vars.a} #!\nerrors", []string{"key", "`consumer` counts by application"}},
		wrong{"a rule twice among others", "limit 1 requests per day\nlimit $1 per day\nlimit 2 requests per hour\nlimit $2 per day #!\nlimit $3 per week", []string{"usd per day", "twice"}},
		wrong{"a group without dollars", "limit $1 per day\nerrors\ngroup gold { #!\nlimit 5 tokens per day\n}\nshadow", []string{"group gold", "no limit of dollars"}},
	),
	"llm_limits t {\n@\n}": {
		{"an unknown side", "consumer {\nlimit 1 requests per day\n}\nprovider { #!\nlimit 1 requests per day\n}", []string{"'provider'", "unrecognized"}},
		{"a side twice", "consumer {\nlimit 1 requests per day\n}\nconsumer { #!\nlimit 2 requests per day\nerrors\n}", []string{"consumer already"}},
		{"a side without limits", "consumer {\nlimit 1 requests per day\n}\nbackend { #!\nerrors\nshadow\n}", []string{"backend", "at least one limit"}},
		{"a side with a word", "consumer all { #!\nlimit 1 requests per day\nerrors\n}", []string{"'all'", "unexpected"}},
		{"a resource of nothing", "resource { #!\nconsumer {\nlimit 1 requests per day\n}\n}", []string{"argument"}},
		{"a resource that is no path", "consumer {\nlimit 1 requests per day\n}\nresource v1 { #!\nconsumer {\nlimit 1 requests per day\n}\n}", []string{"v1"}},
		{"a resource twice", "resource /a {\nconsumer {\nlimit 1 requests per day\n}\n}\nresource /a { #!\nbackend {\nlimit 1 requests per day\n}\n}", []string{"/a"}},
		{"a resource without sides", "resource /a { #!\n}\nconsumer {\nlimit 1 requests per day\n}", []string{"/a", "`consumer` or a `backend`"}},
		{"a word of a resource", "resource /a {\nconsumer {\nlimit 1 requests per day\n}\nlimit 1 requests per day #!\n}", []string{"'limit'", "unrecognized"}},
		{"a limit of a resource", "resource /a {\nconsumer {\nlimit 1 requests per day\nlimit 0 tokens per day #!\nerrors\n}\n}", []string{`"0"`, "greater than zero"}},
	},
	"{\nllm {\n@\n}\n}": {
		{"an unknown word", "meter {\ndrain 1s\n}\nstores redis #!\n", []string{"'stores'", "unrecognized"}},
		{"a word twice", "meter {\ndrain 1s\n}\nmeter { #!\nlease 2s\n}", []string{"meter already"}},
		{"a store of nothing", "store #!\nmeter", []string{"argument"}},
		{"an unknown store", "meter {\ndrain 1s\n}\nstore etcd { #!\naddress x\n}", []string{"etcd"}},
		{"a word of the memory store", "store memory {\npersist off\nsize 5 #!\nmax_entities 6\n}", []string{"'size'", "unrecognized"}},
		{"no entity", "store memory {\nmax_entities 0 #!\npersist off\n}", []string{"'0'", "greater than zero"}},
		{"persist twice", "store memory {\npersist off\nmax_entities 6\npersist /d #!\n}", []string{"persist already"}},
		{"a word of the Redis store", "store redis {\naddress a:1\nhost b #!\ndb 1\n}", []string{"'host'", "unrecognized"}},
		{"an address that is none", "store redis {\ndb 1\naddress a:b:c #!\ntimeout 1s\n}", []string{`"a:b:c"`, "host:port"}},
		{"an address that is a URL", "store redis {\ndb 1\naddress redis://u:secret@a #!\ntimeout 1s\n}", []string{"address is not host:port"}},
		{"a database that is none", "store redis {\naddress a\ndb x #!\ntimeout 1s\n}", []string{"'x'", "whole number"}},
		{"a database of a cluster", "store redis {\naddress a\ndb 1 #!\ncluster\ntimeout 1s\n}", []string{"db 1", "only database 0"}},
		{"a cluster with sentinels", "store redis {\naddress a\nsentinel m\ncluster #!\ntimeout 1s\n}", []string{"cluster and sentinel exclude"}},
		{"several addresses", "store redis {\naddress a b #!\ntimeout 1s\nprefix p\n}", []string{"several addresses"}},
		{"several addresses in lines", "store redis {\naddress a\naddress b #!\ntimeout 1s\nprefix p\n}", []string{"several addresses"}},
		{"a password of no sentinel", "store redis {\naddress a\nsentinel_password s #!\ntimeout 1s\nprefix p\n}", []string{"need `sentinel"}},
		{"a timeout of an hour", "store redis {\naddress a\ntimeout 1h #!\nprefix p\n}", []string{"1h", "from 1ms to 1m"}},
		{"no replica", "store redis {\naddress a\nreplicas 0 #!\nprefix p\n}", []string{"'0'", "greater than zero"}},
		{"an unknown policy", "store redis {\naddress a\non_outage stop #!\nprefix p\n}", []string{`"stop"`, "none of"}},
		{"a word of tls", "store redis {\naddress a\ntls {\nca f\nciphers x #!\ncert g\n}\n}", []string{"'ciphers'", "unrecognized"}},
		{"a word of the meter", "meter {\ndrain 1s\nbody 5 #!\nlease 2s\n}", []string{"'body'"}},
		{"a word of the meter with a block", "meter {\ndrain 1s\nbody { #!\nx\n}\nlease 2s\n}", []string{"'body'"}},
		{"a size that is none", "meter {\nmax_body much #!\nlease 2s\n}", []string{"'much'", "not a size"}},
		{"a drain that is none", "meter {\ndrain some #!\nlease 2s\n}", []string{"'some'", "neither off nor a duration"}},
		{"a lease of a moment", "meter {\nlease 1ms #!\ndrain 2s\n}", []string{"1ms", "shorter than a second"}},
		{"ask_usage of another word", "meter {\nask_usage yes #!\ndrain 2s\n}", []string{"'yes'", "on, off"}},
		{"a header that is none", "meter {\ntrust_duration X:Y #!\ndrain 2s\n}", []string{"X:Y"}},
	},
}

// limiterLines are those that limiters have in common; good is a limit, and words what
// it is called.
func limiterLines(good, words string) []wrong {
	good = "limit " + good
	per := strings.Replace(good, "hour", "%s", 1)
	return []wrong{
		{"an unknown word", good + "\nlimits 5 #!\nerrors", []string{"'limits'", "unrecognized"}},
		{"an unknown window", good + "\n" + fmt.Sprintf(per, "year") + " #!\nerrors", []string{`"year"`}},
		{"a rule twice", good + "\nerrors\n" + good + " #!\nshadow", []string{words, "twice"}},
		{"a rule of a block twice", good + "\nmodel a {\n" + good + "\n" + good + " #!\nper_model\n}\nerrors", []string{words, "twice"}},
		{"a rule of a group twice", good + "\ngroup g {\n" + good + "\n" + good + " #!\n}\nerrors", []string{words, "twice"}},
		{"a rule of a group's block twice", good + "\ngroup g {\n" + good + "\nmodel a {\n" + good + "\n" + good + " #!\ntype x\n}\n}\nerrors", []string{words, "twice"}},
		{"a rule behind more words", good + " for all #!\nerrors", []string{"'for all'", "unexpected"}},
		{"a word of a block", good + "\nmodel a {\n" + good + "\nburst 5 #!\ntype x\n}\nerrors", []string{"'burst'", "unrecognized"}},
		{"a model twice", good + "\nmodel a {\n" + good + "\n}\nmodel b a { #!\n" + good + "\ntype x\n}\nerrors", []string{`"a"`, "twice"}},
		{"a model that another block takes", good + "\nmodel * {\n" + good + "\n}\nmodel b { #!\n" + good + "\ntype x\n}\nerrors", []string{`"b"`, "never counts here"}},
		{"a type that is none", good + "\nmodel a {\ntype A! #!\n" + good + "\n}\nerrors", []string{`"A!"`, "not a word"}},
		{"a group twice", good + "\ngroup g {\n" + good + "\n}\ngroup g { #!\n" + good + "\n}\nerrors", []string{"g", "twice"}},
		{"a member of no group", good + "\ngroups {\ngold a #!\n}\nerrors\nshadow", []string{"'gold'", "no group"}},
		{"a member of two groups", good + "\ngroup g {\n" + good + "\n}\ngroup h {\n" + good + "\n}\ngroups {\ng a b\nh c a #!\ng d\n}\nerrors", []string{`"a"`}},
		{"a default group that is none", good + "\ndefault_group gold #!\ngroup g {\n" + good + "\n}\nerrors", []string{"gold", "no group"}},
		{"unlisted without models", "unlisted deny #!\n" + good + "\nerrors\nshadow", []string{"unlisted deny needs a model block"}},
		{"an unknown mode", good + "\nmode lax #!\nerrors", []string{`"lax"`, "none of"}},
		{"a timezone that is none", good + "\ntimezone Berlin #!\nerrors", []string{`"Berlin"`, "IANA"}},
		{"a status that is none", good + "\nreject 200 #!\nerrors", []string{"'200'", "between 400 and 599"}},
		{"errors with a word", good + "\nerrors on #!\nshadow", []string{"argument"}},
		{"a word twice", "mode strict\n" + good + "\nmode strict #!\nerrors", []string{"mode already"}},
	}
}

// Each error of a Caddyfile names the line of the wrong word itself, the word and the rule,
// wherever the line is, and in a snippet that is imported.
func TestErrorsNameTheLineOfTheWrongWord(t *testing.T) {
	for frame, tests := range wrongLines {
		for _, tc := range tests {
			name, _, _ := strings.Cut(strings.TrimLeft(frame, "{\n"), " ")
			t.Run(name+"/"+tc.name, func(t *testing.T) {
				text := strings.Replace(frame, "@", tc.lines, 1)
				if strings.HasPrefix(frame, "{") { // global options, which import nothing
					checkLine(t, text+"\n:80\n", tc.want)
					return
				}
				checkLine(t, ":80 {\n"+text+"\n}\n", tc.want)
				checkLine(t, ":80 {\nhandle /v1/* {\n"+text+"\n}\nrespond ok\n}\n", tc.want)
				checkLine(t, "(lines) {\n"+text+"\n}\n:80 {\nimport lines\n}\n", tc.want)
			})
		}
	}
}

// adapted is adapt, of what may be wrong.
func adapted(text string) ([]byte, error) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return config, err
}

func checkLine(t *testing.T, text string, want []string) {
	t.Helper()
	before, _, marked := strings.Cut(text, here)
	if !marked {
		t.Fatalf("no line is marked in\n%s", text)
	}
	line := 1 + strings.Count(before, "\n")
	_, err := adapted(text)
	if err == nil {
		t.Fatalf("no error of\n%s", text)
	}
	_, at, _ := strings.Cut(err.Error(), "Caddyfile:")
	if number, _, _ := strings.Cut(at, " "); strings.Trim(number, "',") != fmt.Sprint(line) {
		t.Errorf("got %q, want line %d of\n%s", err, line, text)
	}
	for _, word := range want {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not contain %q", err, word)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q repeats a secret", err)
	}
}
