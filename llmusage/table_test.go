package llmusage

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, time.November, 29, 12, 0, 0, 0, time.UTC)

// counters are rows as the admin endpoint writes them.
func counters(t testing.TB) (rows []counter) {
	t.Helper()
	err := json.Unmarshal([]byte(`[
		{"instance":"apps","rule":"tokens per hour","consumer":"app-a","model":"","unit":"tokens","limit":100,"used":120,"reserved":0,"remaining":0,"resets_at":"2026-11-29T12:24:00Z"},
		{"instance":"apps","rule":"tokens per hour","consumer":"app-b","model":"","unit":"tokens","limit":1000000,"used":850000,"reserved":1500,"remaining":148500,"resets_at":"2026-11-29T12:24:00Z"},
		{"instance":"apps","rule":"concurrent","consumer":"app-b","model":"","unit":"concurrent","limit":8,"used":0,"reserved":2,"remaining":6,"resets_at":null},
		{"instance":"budget","rule":"usd per day","consumer":"app-b","model":"","unit":"usd","limit":"10","used":"0.125","reserved":"0","remaining":"9.875","resets_at":"2026-11-30T00:00:00Z"},
		{"instance":"models","rule":"audio_seconds per day (whisper*)","consumer":"app-b","model":"whisper-1","unit":"audio_seconds","limit":3600,"used":1.5,"reserved":0,"remaining":3598.5,"resets_at":"2026-12-02T15:00:00Z"},
		{"instance":"backend","rule":"requests per minute","consumer":"","model":"","unit":"requests","limit":1000,"used":-5,"reserved":0,"remaining":1005,"resets_at":"2026-11-29T12:00:20Z"}
	]`), &rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestTable(t *testing.T) {
	got := render(counters(t), look{blocks: true}, noon)
	want := `CONSUMER  INSTANCE  RULE                                            USED  RESERVED      LIMIT                              RESETS IN
app-a     apps      tokens per hour                                  120         0        100  ████████████████████  100%  24 min
app-b     apps      tokens per hour                              850,000     1,500  1,000,000  █████████████████░░░   85%  24 min
app-b     apps      concurrent                                         0         2          8  █████░░░░░░░░░░░░░░░   25%
app-b     budget    usd per day                                   $0.125     $0.00     $10.00  ░░░░░░░░░░░░░░░░░░░░    1%  12 h
app-b     models    audio_seconds per day (whisper*): whisper-1    1.5 s       0 s    3,600 s  ░░░░░░░░░░░░░░░░░░░░    0%  3 d 3 h
(shared)  backend   requests per minute                               -5         0      1,000  ░░░░░░░░░░░░░░░░░░░░    0%  20 s
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	rows := counters(t)
	for _, tc := range []struct {
		width int
		want  string // the line of app-b's first limit
	}{
		{120, "app-b     apps      tokens per hour                  850,000     1,500  1,000,000  █████████████████░░░   85%  24 min"},
		{100, "app-b     apps      tokens per hour   850,000     1,500  1,000,000  ████████████░░░   85%  24 min"},
		{80, "app-b     apps      tokens per hour   850,000     1,500  1,000,000  █████░   85%"},
		{60, "app-b     tokens per hour   850,000  1,000,000   85%"},
		{40, "app-b     tokens per hour   850,000  1,000,000   85%"}, // as narrow as it gets
	} {
		got := strings.Split(render(rows, look{width: tc.width, blocks: true}, noon), "\n")
		if got[2] != tc.want {
			t.Errorf("width %d: got\n%s\nwant\n%s", tc.width, got[2], tc.want)
		}
		for _, l := range got {
			if cells(l) > max(tc.width, 53) {
				t.Errorf("width %d: %d columns: %s", tc.width, cells(l), l)
			}
		}
	}
}

func TestColoursAndBlocksAreForTerminals(t *testing.T) {
	rows := counters(t)
	if got := render(rows, look{}, noon); strings.ContainsAny(got, "\x1b█░") || !strings.Contains(got, "####################  100%") {
		t.Errorf("got\n%s", got)
	}
	got := render(rows, look{terminal: true, width: 200, colour: true, blocks: true}, noon)
	if !strings.Contains(got, "\x1b[31m████████████████████\x1b[0m") || !strings.Contains(got, "\x1b[33m█████████████████░░░\x1b[0m") || strings.Count(got, "\x1b[") != 4 {
		t.Errorf("got\n%q", got)
	}
}

func TestNamesCannotDriveTheTerminal(t *testing.T) {
	rows := []counter{{
		Consumer: "a\x1b[2J\nb\r\u202e\u009bc", Instance: "i\x07", Rule: "r\t", Model: "m\x00", Unit: "tokens",
		Limit: "1", Used: "0", Reserved: "0", Remaining: "1",
	}}
	got := render(rows, look{}, noon)
	if strings.Count(got, "\n") != 2 || strings.ContainsAny(got, "\x1b\r\u202e\u009b\x07\t\x00") {
		t.Errorf("got %q", got)
	}
}

func TestTableOfAnyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.Rune(), 0, 40, -1)
		rows := []counter{{
			Consumer: name.Draw(t, "consumer"), Instance: name.Draw(t, "instance"), Rule: name.Draw(t, "rule"), Model: name.Draw(t, "model"), Unit: "requests",
			Limit: "10", Used: "5", Reserved: "1", Remaining: "4",
		}}
		width := rapid.IntRange(60, 200).Draw(t, "width")
		got := render(rows, look{width: width, blocks: true}, noon)
		lines := strings.Split(got, "\n")
		if len(lines) != 3 || !utf8.ValidString(got) {
			t.Fatalf("%d lines: %q", len(lines), got)
		}
		for _, l := range lines {
			if cells(l) > width {
				t.Fatalf("%d columns of %d: %q", cells(l), width, l)
			}
		}
	})
}
