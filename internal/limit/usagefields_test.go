package limit

import (
	"strings"
	"testing"
)

func TestUsageFieldsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		name, limit string
		fields      []string
		want        string // in the error; empty if there is none
	}{
		{"with tokens", "10k tokens per hour", []string{"usage.total"}, ""},
		{"with uncached tokens", "10k uncached_tokens per hour", []string{"usage.total"}, ""},
		{"with input tokens", "10k input_tokens per hour", []string{"results.#.in", "in"}, ""},
		{"with output tokens", "10k output_tokens per hour", []string{"usage.total"}, "do not tell input from output"},
		{"with requests alone", "10 requests per hour", []string{"usage.total"}, "needs a limit that counts tokens"},
		{"with concurrent calls alone", "10 concurrent", []string{"usage.total"}, "needs a limit that counts tokens"},
		{"a path that cannot be followed", "10k tokens per hour", []string{"usage.@values"}, `usage_fields: field "usage.@values"`},
		{"a path twice", "10k tokens per hour", []string{"n", "n"}, `usage_fields: field "n" is named twice`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := newLimiter(&Config{Limits: parse(t, tc.limit), UsageFields: tc.fields}, TokenLimit)
			switch {
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got error %v, want one with %q", err, tc.want)
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want == "" && l.fields == nil:
				t.Error("nothing is sought")
			}
		})
	}
}
