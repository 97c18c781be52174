package apikeyauth

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// writerFile has the test below be a process that issues keys in that file.
const writerFile = "LLM_TEST_KEYS_FILE"

// Several operators and scripts issue, rotate and revoke keys of one file at once: all of
// what they were told is in it.
func TestNoKeyIsLostWhenManyChangeAFile(t *testing.T) {
	const each = 5
	issue := func(path string) (ids []string) {
		m := &fileManager{path: path, now: time.Now}
		for range each {
			kept, err := m.issue(&keyRequest{})
			if err != nil {
				t.Error(err)
				return ids
			}
			ids = append(ids, kept.ID)
			gone, err := m.issue(&keyRequest{})
			if err == nil {
				_, err = m.rotate(kept.ID, "1h", "")
			}
			if err == nil {
				err = m.revoke(gone.ID)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return ids
	}
	if path := os.Getenv(writerFile); path != "" {
		fmt.Println("issued", strings.Join(issue(path), " "))
		return
	}

	path := filepath.Join(t.TempDir(), "keys.json") // which the first of them makes
	var mu sync.Mutex
	var want []string
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			ids := issue(path)
			mu.Lock()
			defer mu.Unlock()
			want = append(want, ids...)
		})
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), writerFile+"="+path)
			out, err := cmd.CombinedOutput()
			_, line, _ := strings.Cut(string(out), "issued ")
			line, _, ok := strings.Cut(line, "\n")
			if err != nil || !ok {
				t.Errorf("%v: %s", err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			want = append(want, strings.Fields(line)...)
		})
	}
	wg.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := idsOf(t, text)
	slices.Sort(got)
	if slices.Sort(want); len(want) != 6*each || !slices.Equal(got, want) {
		t.Errorf("%d keys were issued, the file has %d", len(want), len(got))
	}
}

func TestALockIsOfOneFileAndCanBeTakenAgain(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		first, err := lockFile(filepath.Join(dir, "a.json"))
		if err != nil {
			t.Fatal(err)
		}
		second, err := lockFile(filepath.Join(dir, "b.json"))
		if err != nil {
			t.Fatal(err)
		}
		first()
		second()
	}
	if _, err := lockFile(filepath.Join(dir, "none", "a.json")); err == nil {
		t.Error("a file in no directory was locked")
	}
}
