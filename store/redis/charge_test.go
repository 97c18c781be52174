//go:build unix

package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// A batch of more lines than a script can take is charged in parts, each once however
// often it is sent.
func TestBatchesOfManyLines(t *testing.T) {
	_, o := single(t)
	s := open(t, o)
	w, err := store.Calendar("month", nil)
	if err != nil {
		t.Fatal(err)
	}
	e := store.Entity{Instance: "apps", Consumer: "team-a"}
	var rules []*store.Rule
	for i := range 9000 {
		rules = append(rules, &store.Rule{ID: fmt.Sprint("rule ", i), Window: w})
	}
	for _, n := range []int{0, 1, rulesMost, rulesMost + 1, len(rules)} {
		before := readAll(t, s, e, rules)
		b := store.Batch{Entity: e, Origin: fmt.Sprintf("%016x", n), Seq: time.Now().UnixMicro(), At: time.Now()}
		for _, r := range rules[:n] {
			b.Lines = append(b.Lines, store.Amount{Rule: r, Amount: 3})
		}
		for range 2 {
			if err := s.Charge(context.Background(), []store.Batch{b})[0]; err != nil {
				t.Fatalf("%d lines: %v", n, err)
			}
		}
		for i, used := range readAll(t, s, e, rules) {
			want := before[i]
			if i < n {
				want += 3
			}
			if used != want {
				t.Fatalf("%d lines: %d charged to the rule %d, want %d", n, used, i, want)
			}
		}
	}
}

func readAll(t *testing.T, s *Store, e store.Entity, rules []*store.Rule) []int64 {
	t.Helper()
	results, used := make([]store.Result, len(rules)), make([]int64, len(rules))
	if err := s.Read(context.Background(), e, rules, results); err != nil {
		t.Fatal(err)
	}
	for i := range results {
		used[i] = results[i].Used
	}
	return used
}
