package llmusage

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

func TestAmountsForPeople(t *testing.T) {
	for _, tc := range []struct{ unit, number, want string }{
		{"tokens", "0", "0"},
		{"tokens", "999", "999"},
		{"tokens", "1000", "1,000"},
		{"tokens", "-1234567", "-1,234,567"},
		{"usd", "10", "$10.00"},
		{"usd", "0.5", "$0.50"},
		{"usd", "-1234.125", "-$1,234.125"},
		{"usd", "0.000000000001", "$0.000000000001"},
		{"audio_seconds", "3600", "3,600 s"},
		{"video_seconds", "1.500", "1.5 s"},
	} {
		if got := amountText(tc.unit, tc.number); got != tc.want {
			t.Errorf("%s %s: got %q, want %q", tc.number, tc.unit, got, tc.want)
		}
	}
}

func TestDollarsAreNotRoundedInOnesFavour(t *testing.T) {
	const cent = dollar / 100
	for _, tc := range []struct {
		n, limit int64
		rounded  int
		want     string
	}{
		{1, dollar, up, "$0.000001"},
		{dollar - 1, dollar, down, "$0.999999"},
		{dollar - 1, dollar, up, "$1.00"},
		{-1, dollar, up, "$0.00"},
		{-1, dollar, down, "-$0.000001"},
		{5 * cent, dollar, up, "$0.05"},
		{1, cent, up, "$0.000000000001"}, // of so little all of it counts
	} {
		q := &llmapp.Quota{RuleInfo: llmapp.RuleInfo{Unit: unitUSD}, Limit: tc.limit}
		if got := amountOf(q, tc.n, tc.rounded); got != tc.want {
			t.Errorf("%d of %d: got %s, want %s", tc.n, tc.limit, got, tc.want)
		}
	}
}

func TestWait(t *testing.T) {
	for _, tc := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0 s"},
		{time.Millisecond, "1 s"},
		{59 * time.Second, "59 s"},
		{59*time.Second + 1, "1 min"},
		{59 * time.Minute, "59 min"},
		{59*time.Minute + time.Second, "1 h"},
		{90 * time.Minute, "1 h 30 min"},
		{24*time.Hour - time.Second, "1 d"},
		{25 * time.Hour, "1 d 1 h"},
		{31 * 24 * time.Hour, "31 d"},
	} {
		if got := wait(tc.d); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.d, got, tc.want)
		}
	}
}

func TestPermilleIsFullOnlyAtTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Int64Min(0).Draw(t, "whole") // a limit may be nothing at all
		part := rapid.Int64().Draw(t, "part")
		got := permille(part, whole)
		if got < 0 || got > 1000 || (got == 1000) != (part >= whole) || part <= 0 && part < whole && got != 0 {
			t.Fatalf("%d of %d is %d", part, whole, got)
		}
	})
}

func TestTitles(t *testing.T) {
	for words, want := range map[string]string{
		"tokens per hour":                  "Tokens per hour",
		"concurrent":                       "Calls at one time",
		"concurrent (a b)":                 "Calls at one time",
		"usd per month":                    "US dollars per month",
		"audio_seconds per day (whisper*)": "Seconds of audio per day",
		"requests per minute burst":        "Requests per minute, with a burst",
		"tokens per rolling 7d":            "Tokens per rolling 7d",
	} {
		if got := titleOf(&llmapp.Quota{RuleInfo: llmapp.RuleInfo{Words: words}}); got != want {
			t.Errorf("%q: got %q, want %q", words, got, want)
		}
	}
}

func TestStampsSayTheirDay(t *testing.T) {
	for _, tc := range []struct {
		t    time.Time
		want string
	}{
		{noon, "12:00:00 UTC"},
		{noon.Add(time.Hour), "13:00 UTC"},
		{noon.Add(12 * time.Hour), "Mon 30 Nov, 00:00 UTC"},
		{noon.AddDate(1, 0, 0), "29 Nov 2027, 12:00 UTC"},
		{noon.In(time.FixedZone("CET", 3600)).Add(time.Hour), "13:00 UTC"},
	} {
		if got := stampOf(tc.t, noon); got.Text != tc.want {
			t.Errorf("%v: got %q, want %q", tc.t, got.Text, tc.want)
		}
	}
}

func TestPace(t *testing.T) {
	var p pace
	a, b := caller{application: "a"}, caller{id: "a"}
	for range perSecond {
		if !p.admits(a, noon) {
			t.Fatal("refused too early")
		}
	}
	if p.admits(a, noon.Add(999*time.Millisecond)) {
		t.Error("more than the most in a second")
	}
	if !p.admits(b, noon) || !p.admits(a, noon.Add(time.Second)) {
		t.Error("another caller or second is refused")
	}
	if len(p.asked) != 1 {
		t.Errorf("%d callers of seconds that are over are kept", len(p.asked)-1)
	}
}

func TestKeysOfAnApplicationArePacedTogether(t *testing.T) {
	var p pace
	for i := range perSecond {
		if !p.admits(caller{"app", fmt.Sprint("key ", i)}.paced(), noon) {
			t.Fatal("refused too early")
		}
	}
	if p.admits(caller{"app", "another key"}.paced(), noon) {
		t.Error("another key of the application is no reason to read more")
	}
	for _, other := range []caller{{"other app", "key 0"}, {"", "key 0"}, {"", "key 1"}} {
		if !p.admits(other.paced(), noon) {
			t.Errorf("%+v is refused", other)
		}
	}
}

func TestCallersOfASecondAreBounded(t *testing.T) {
	var p pace
	for i := range callersMost + 10 {
		if admitted := p.admits(caller{id: strconv.Itoa(i)}, noon); admitted != (i < callersMost) {
			t.Fatalf("caller %d is admitted: %t", i, admitted)
		}
	}
	if !p.admits(caller{id: "0"}, noon) || !p.admits(caller{id: "next"}, noon.Add(time.Second)) {
		t.Error("who was there, or comes in the next second, is refused")
	}
}
