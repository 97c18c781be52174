package llmapp

import (
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// references is how many configs hold the memory store.
func references(t testing.TB) int {
	t.Helper()
	n, _ := pool.References((*Memory)(nil).Key())
	return n
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, tc := range []struct{ name, app, want string }{
		{"a negative body", `{"meter":{"max_body":-1}}`, "max_body -1"},
		{"a body beyond all memory", `{"meter":{"max_body":9007199254740992}}`, "max_body 9007199254740992"},
		{"negative bodies", `{"meter":{"max_buffered":-5}}`, "max_buffered -5"},
		{"bodies beyond all memory", `{"meter":{"max_buffered":9007199254740992}}`, "max_buffered 9007199254740992"},
		{"another word", `{"meter":{"ask_usage":"maybe"}}`, `ask_usage "maybe" is none of on, off`},
		{"a short lease", `{"meter":{"lease":"999ms"}}`, "lease 999ms is shorter than a second"},
		{"a negative lease", `{"meter":{"lease":"-1s"}}`, "lease -1s is shorter than a second"},
		{"negative entities", `{"store":{"type":"memory","max_entities":-1}}`, "max_entities -1"},
		{"an unknown store", `{"store":{"type":"paper"}}`, "loading store"},
		{"a store without a type", `{"store":{}}`, "loading store"},
		{"an unknown option", `{"meters":{}}`, "meters"},
		{"an unknown option of the meter", `{"meter":{"max_bodies":1}}`, "max_bodies"},
		{"an unknown option of the store", `{"store":{"type":"memory","entities":1}}`, "entities"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := references(t)
			err := run(t, config(t, "", "", `,"llm":`+tc.app))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if after := references(t); after != before {
				t.Errorf("a config that is refused leaves %d references, there were %d", after, before)
			}
		})
	}
}

func TestOptionsAreInForce(t *testing.T) {
	a := mustRun(t, config(t, "", "", `,"llm":{}`))
	if got := a.Leases().Lease(); got != 90*time.Second {
		t.Errorf("the default lease is %s", got)
	}
	b := mustRun(t, config(t, "", "", `,"llm":{"meter":{"lease":"5m"}}`))
	if got := b.Leases().Lease(); got != 5*time.Minute {
		t.Errorf("got the lease %s", got)
	}
	if a.Counters() != b.Counters() || a.Meter() != b.Meter() || a.Leases() != b.Leases() {
		t.Error("a reload makes new counters")
	}
	if active() != b {
		t.Error("the app of the old config is active")
	}
	c := mustRun(t, config(t, "", "", `,"llm":{}`))
	if got := c.Leases().Lease(); got != 90*time.Second {
		t.Errorf("after a reload without the option the lease is %s", got)
	}
}

// Servers may take calls before the app starts: of the first config these, too, are under
// its options.
func TestOptionsAreInForceBeforeTheStart(t *testing.T) {
	stop(t)()
	early := false
	failStart = func() error {
		if early = active() == nil; !early {
			return nil
		}
		pool.Range(func(_, v any) bool {
			if got := v.(*shared).leases.Lease(); got != 7*time.Second {
				t.Errorf("the lease is %s", got)
			}
			return true
		})
		return nil
	}
	t.Cleanup(func() { failStart = nil })
	// Caddy starts the apps in any order
	for i := 0; !early; i++ {
		if i == 200 {
			t.Fatal("the llm app always started first")
		}
		mustRun(t, config(t, "", "", `,"llm":{"meter":{"lease":"7s"}},"test_failing":{}`))
		stop(t)()
	}
}

func TestTheStoreHasOneReferenceForEachConfig(t *testing.T) {
	before := references(t)
	for range 3 {
		mustRun(t, config(t, route("", limiter, respond), "", `,"llm":{}`))
		if got := references(t); got != before+1 {
			t.Errorf("there are %d references", got)
		}
	}
	stop(t)()
	if got := references(t); got != before {
		t.Errorf("after the end there are %d references", got)
	}
	if active() != nil {
		t.Error("there is an active app")
	}
}

func TestAConfigIsOnlyValidated(t *testing.T) {
	a := mustRun(t, config(t, "", "", `,"llm":{"meter":{"lease":"3m"}}`))
	before := references(t)
	var c caddy.Config
	if err := caddy.StrictUnmarshalJSON(config(t, route("", limiter, respond), "", `,"llm":{"meter":{"lease":"7s"}}`), &c); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&c); err != nil {
		t.Fatal(err)
	}
	if got := a.Leases().Lease(); got != 3*time.Minute || active() != a {
		t.Errorf("validating changed the running lease to %s", got)
	}
	if got := references(t); got != before {
		t.Errorf("there are %d references, and were %d", got, before)
	}
}

func TestAConfigThatDoesNotStartChangesNothing(t *testing.T) {
	a := mustRun(t, config(t, "", "", `,"llm":{"meter":{"lease":"3m"}}`))
	before := references(t)
	t.Run("by its routes", func(t *testing.T) {
		if err := run(t, config(t, route("", proxy, limiter), "", `,"llm":{"meter":{"lease":"7s"}}`)); err == nil {
			t.Fatal("it started")
		}
	})
	t.Run("by another app that starts later", func(t *testing.T) {
		// Caddy starts the apps in any order: again, until this one was the last
		late := false
		failStart = func() error {
			late = active() != a
			return errStart
		}
		for range 200 {
			err := run(t, config(t, "", "", `,"llm":{"meter":{"lease":"7s"}},"test_failing":{}`))
			if err == nil || !strings.Contains(err.Error(), errStart.Error()) {
				t.Fatalf("got %v", err)
			}
			if late {
				return
			}
		}
		t.Error("the llm app never started before the one that fails")
	})
	if active() != a {
		t.Error("the app of the running config is not active any more")
	}
	if got := a.Leases().Lease(); got != 3*time.Minute {
		t.Errorf("the lease is %s", got)
	}
	if got := references(t); got != before {
		t.Errorf("there are %d references, and were %d", got, before)
	}
}

func TestCleanupGivesBackWhatProvisionTook(t *testing.T) {
	before := references(t)
	t.Run("without Provision", func(t *testing.T) {
		if err := new(App).Cleanup(); err != nil {
			t.Error(err)
		}
	})
	t.Run("after Provision failed", func(t *testing.T) {
		a := &App{Meters: Meter{MaxBody: -1}}
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		defer cancel()
		if err := a.Provision(ctx); err == nil {
			t.Error("no error")
		}
		if err := a.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	t.Run("twice", func(t *testing.T) {
		a := new(App)
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		defer cancel()
		if err := a.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		if got := references(t); got != before+1 {
			t.Errorf("Provision leaves %d references", got)
		}
		counters := a.Counters()
		for range 2 {
			if err := a.Cleanup(); err != nil {
				t.Error(err)
			}
		}
		if a.Counters() != counters {
			t.Error("calls at work cannot settle any more")
		}
	})
	if got := references(t); got != before {
		t.Errorf("there are %d references, and were %d", got, before)
	}
}

func TestStopWithoutStart(t *testing.T) {
	a := mustRun(t, config(t, "", "", `,"llm":{}`))
	if err := new(App).Stop(); err != nil {
		t.Error(err)
	}
	if active() != a {
		t.Error("another app's Stop stopped this one")
	}
}

func TestEqualUnnamedInstancesAreRefusedAtLoad(t *testing.T) {
	in := `{"handler":"test_limit","role":"limiter","instance":"twice"}`
	err := run(t, config(t, route("", in, in, respond), "", ""))
	if err == nil || !strings.Contains(err.Error(), `the name "twice" stands here twice`) {
		t.Errorf("got %v", err)
	}
}

func TestTheAppStartsWithoutBeingNamed(t *testing.T) {
	if a := mustRun(t, config(t, route("", `{"handler":"test_limit","role":"limiter","instance":"implicit"}`), "", "")); a == nil {
		t.Error("no app is active")
	}
	// and its routes are checked
	err := run(t, config(t, route("", respond, limiter), "", ""))
	if err == nil || !strings.Contains(err.Error(), "nothing would be counted") {
		t.Errorf("got %v", err)
	}
}
