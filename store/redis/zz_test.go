//go:build unix

package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func TestZZ(t *testing.T) {
	for _, n := range []int{1, 3, 8} {
		_, o := single(t)
		s := open(t, o)
		results, takes := make([]store.Result, n), takes(n)
		for i := range 6000 {
			if i == 1000 {
				s.client.ConfigResetStat(t.Context())
			}
			e := store.Entity{Instance: "tokens", Consumer: fmt.Sprint("app-", i%1000)}
			k, err := s.Reserve(t.Context(), &store.Reservation{Entity: e, Takes: takes, Lease: time.Minute}, results)
			if err != nil || k == nil {
				t.Fatal(k, err)
			}
		}
		info := s.client.Info(t.Context(), "commandstats").Val()
		for _, l := range strings.Split(info, "\n") {
			fmt.Println(n, l)
		}
	}
}
