package apikeyauth

import (
	"reflect"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

func TestIDsOfKeysOfTwoApplicationsAreWarnedOf(t *testing.T) {
	first := []Key{
		{ID: "a", Hash: hashOf("a1"), Application: "shop"},
		{ID: "b", Hash: hashOf("b1"), Application: "desk"},
		{ID: "c", Hash: hashOf("c1")},
	}
	for _, tc := range []struct {
		name   string
		second []Key
		want   []any
	}{
		{"the same keys", first, nil},
		{"other keys", []Key{{ID: "d", Hash: hashOf("d1"), Application: "shop"}}, nil},
		{"another secret of the same application", []Key{{ID: "a", Hash: hashOf("a2"), Application: "shop"}}, nil},
		{"another application", []Key{{ID: "a", Hash: hashOf("a2"), Application: "desk"}}, []any{"a"}},
		{"no application", []Key{{ID: "a", Hash: hashOf("a2")}, {ID: "b", Hash: hashOf("b1"), Application: "desk"}}, []any{"a"}},
		{"an application, of one that had none", []Key{{ID: "c", Hash: hashOf("c1"), Application: "shop"}}, []any{"c"}},
		{
			"several, one of them rotated",
			[]Key{
				{ID: "b", Hash: hashOf("b2"), Application: "shop", Previous: &Previous{Hash: hashOf("b0"), Until: "2999-12-31"}},
				{ID: "a", Hash: hashOf("a2"), Application: "desk"},
			},
			[]any{"a", "b"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			app := new(llmapp.App)
			one, two := &Handler{Keys: first}, &Handler{Keys: tc.second}
			before, logs := mustProvision(t, one), mustProvision(t, two)
			one.warnOfClashes(app)
			two.warnOfClashes(app)
			if n := before.FilterMessageSnippet("the same id").Len(); n != 0 {
				t.Errorf("the first handler warns %d times", n)
			}
			warnings := logs.FilterMessageSnippet("the same id").All()
			if tc.want == nil {
				if len(warnings) != 0 {
					t.Errorf("warned of %v", warnings)
				}
				return
			}
			if len(warnings) != 1 || !reflect.DeepEqual(warnings[0].ContextMap()["ids"], tc.want) {
				t.Errorf("got %v, want a warning of %v", warnings, tc.want)
			}
		})
	}
}
