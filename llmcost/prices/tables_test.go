package prices

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// liteLLMFull is where a full table of LiteLLM stands beside the checkout, if it does.
const liteLLMFull = "../../../shared/cases/prices/litellm_model_prices_2026-08-01.json"

// noon is a moment at which no off-peak hour begins.
var noon = time.Date(2026, 10, 27, 12, 0, 0, 0, time.UTC)

// someLiteLLM is a part of LiteLLM's table.
func someLiteLLM(tb testing.TB) *Table {
	tb.Helper()
	return parseTable(tb, filepath.Join("testdata", "litellm.json"))
}

// largeTable is LiteLLM's full table where it is at hand, else the project's own.
func largeTable(tb testing.TB) *Table {
	tb.Helper()
	if _, err := os.Stat(liteLLMFull); errors.Is(err, fs.ErrNotExist) {
		l := Builtin()
		return NewTable(l.AsOf, l.Rows)
	}
	return parseTable(tb, liteLLMFull)
}

func parseTable(tb testing.TB, path string) *Table {
	tb.Helper()
	l := parseLayer(tb, path)
	return NewTable(l.AsOf, l.Rows)
}

func parseLayer(tb testing.TB, path string) *Layer {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := ParseLiteLLM(data)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// row builds a row from fields of LiteLLM's.
func row(tb testing.TB, key, fields string) *Row {
	tb.Helper()
	l, err := ParseLiteLLM([]byte(`{"` + key + `":` + fields + `}`))
	if err != nil {
		tb.Fatal(err)
	}
	if len(l.Faults) > 0 {
		tb.Fatal(l.Faults)
	}
	return l.Rows[0]
}
