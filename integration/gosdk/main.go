// Command gosdk calls the gateway with the official Go clients of OpenAI and Anthropic
// and prints what they make of it, as JSON. The integration tests run it; it is a
// module of its own so that no user of the gateway needs these clients.
//
// Addresses and keys come from the variables that the clients read by themselves
// (OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY).
//
//	gosdk calls    every kind of call: {"<call>": …}
//	gosdk refused  one call of each kind that is not to get an answer: {"<call>": {error, statuses}}
//	gosdk patient  calls of each client until one had to be retried: {"<client>": [{ok, statuses}, …]}
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gosdk calls | refused | patient")
		os.Exit(2)
	}
	ctx := context.Background()
	var result any
	switch os.Args[1] {
	case "calls":
		result = results(ctx)
	case "refused":
		ended := make(map[string]attempt)
		for name, call := range attempts {
			ended[name] = try(ctx, call)
		}
		result = ended
	case "patient":
		result = untilRetried(ctx, "openai", "anthropic")
	default:
		fmt.Fprintf(os.Stderr, "unknown argument %q\n", os.Args[1])
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// failure is the result of a call that should not have failed.
type failure struct {
	Failed string `json:"failed"`
}

// results makes all calls, without retries.
func results(ctx context.Context) map[string]any {
	all := make(map[string]any)
	for name, call := range calls() {
		got, err := call(ctx)
		if err != nil {
			got = failure{err.Error()}
		}
		all[name] = got
	}
	return all
}

// mostCalls ends the patience where each call has a window of the limit to itself.
const mostCalls = 50

// untilRetried makes calls with all clients at a time, one after the other with each.
func untilRetried(ctx context.Context, names ...string) map[string][]attempt {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		ended = make(map[string][]attempt)
	)
	for _, name := range names {
		wg.Go(func() {
			for range mostCalls {
				a := try(ctx, attempts[name])
				mu.Lock()
				ended[name] = append(ended[name], a)
				mu.Unlock()
				if len(a.Statuses) > 1 {
					return
				}
			}
		})
	}
	wg.Wait()
	return ended
}
