package llmcost

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

func TestHeldPricesAreNamedBeforeOtherFaults(t *testing.T) {
	held := []prices.Fault{{Provider: "openai", Key: "held", Reason: "input moved more than 10 times: keeping the last price"}}
	faults := held
	for i := range 30 {
		faults = append(faults, prices.Fault{Key: fmt.Sprintf("fault-%d", i), Reason: "no price"})
	}
	for _, tt := range []struct {
		name   string
		report prices.Report
		lines  int // of the level warn
	}{
		{"a copy", prices.Report{Source: "s", Held: held, Layer: &prices.Layer{Faults: faults, Held: held}}, 1 + maxFaults},
		{"a reminder", prices.Report{Source: "s", Held: held}, 1},
		{"nothing held", prices.Report{Source: "s", Layer: &prices.Layer{Faults: faults[1:3]}}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(zapcore.DebugLevel)
			tell(zap.New(core), tt.report)
			lines := logs.FilterLevelExact(zapcore.WarnLevel).All()
			if len(lines) != tt.lines {
				t.Fatalf("%d lines, want %d", len(lines), tt.lines)
			}
			first := fmt.Sprint(lines[0].ContextMap()["fault"])
			if named := strings.Contains(first, `"held"`); named != (len(tt.report.Held) > 0) {
				t.Errorf("first %q", first)
			}
		})
	}
}
