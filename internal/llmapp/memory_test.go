package llmapp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// persistTo is a config with a memory store that has the directory.
func persistTo(t testing.TB, dir, apps string) []byte {
	t.Helper()
	name, err := json.Marshal(dir)
	if err != nil {
		t.Fatal(err)
	}
	return config(t, "", "", `,"llm":{"store":{"type":"memory","persist":`+string(name)+`}}`+apps)
}

// adaptedTo is persistTo by way of a Caddyfile.
func adaptedTo(t testing.TB, dir string) []byte {
	t.Helper()
	file := fmt.Sprintf("{\n\tadmin off\n\tpersist_config off\n\tllm {\n\t\tstore memory {\n\t\t\tpersist %q\n\t\t}\n\t}\n}\n", dir)
	adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), nil)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return adapted
}

// dataDir returns a directory that the process lets go of before it is deleted. Now
// the process has none.
func dataDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	forget := func() {
		if err := process().Close(); err != nil {
			t.Error(err)
		}
	}
	forget()
	t.Cleanup(forget)
	return dir
}

func counts(t testing.TB, dir string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, "counters.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// restarted returns what another process finds that a consumer has used.
func restarted(t testing.TB, dir, instance, consumer string) int64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "counters.log"))
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.WriteFile(filepath.Join(copied, "counters.log"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	s := memory.New(memory.Options{})
	if _, err := s.Persist(copied); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var results [1]store.Result
	rules := []*store.Rule{testRules()[0].Store}
	if err := s.Read(t.Context(), store.Entity{Instance: instance, Consumer: consumer}, rules, results[:]); err != nil {
		t.Fatal(err)
	}
	return results[0].Used
}

func TestCountsAreWrittenToTheDataDirectory(t *testing.T) {
	consumer := dataDir(t) // which no other test has
	a := mustRun(t, config(t, "", "", `,"llm":{}`))
	charge(t, a, "persisted", consumer, 300, false)
	stop(t)() // as at the end of the process
	if got := restarted(t, filepath.Join(caddy.AppDataDir(), "llm"), "persisted", consumer); got != 300 {
		t.Errorf("a restart finds %d tokens used", got)
	}
}

func TestCountsMoveWithTheDirectory(t *testing.T) {
	first, second := dataDir(t), filepath.Join(dataDir(t), "not", "made")
	a := mustRun(t, persistTo(t, first, ""))
	charge(t, a, "persisted", first, 5, false)
	b := mustRun(t, persistTo(t, second, ""))
	if a.Counters() != b.Counters() {
		t.Error("a reload makes new counters")
	}
	if counts(t, first) {
		t.Error("the counts are still in the first directory")
	}
	if got := restarted(t, second, "persisted", first); got != 5 {
		t.Errorf("a restart finds %d tokens used", got)
	}
	mustRun(t, persistTo(t, "off", ""))
	if got := process().Dir(); got != "" {
		t.Errorf("counts are written to %s", got)
	}
}

func TestTheDirectoryMayHavePlaceholders(t *testing.T) {
	dir := dataDir(t)
	t.Setenv("LLM_TEST_DIR", dir)
	mustRun(t, persistTo(t, "{env.LLM_TEST_DIR}/a", ""))
	if got, want := process().Dir(), filepath.Join(dir, "a"); got != want {
		t.Errorf("counts are written to %q, want %q", got, want)
	}
	t.Setenv("LLM_TEST_DIR", "")
	if err := run(t, persistTo(t, "{env.LLM_TEST_DIR}", "")); err == nil || !strings.Contains(err.Error(), "LLM_TEST_DIR") {
		t.Errorf("got %v", err)
	}
}

func TestValidatingTouchesNoDirectory(t *testing.T) {
	dir := dataDir(t)
	mustRun(t, persistTo(t, dir, ""))
	other := filepath.Join(dir, "other")
	for _, d := range []string{dir, other} {
		var c caddy.Config
		if err := caddy.StrictUnmarshalJSON(persistTo(t, d, ""), &c); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(&c); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made (%v)", err)
	}
	if got := process().Dir(); got != dir {
		t.Errorf("counts are written to %q", got)
	}
}

func TestADirectoryOfAnotherProcessIsRefused(t *testing.T) {
	first, taken := dataDir(t), t.TempDir()
	other := memory.New(memory.Options{})
	if _, err := other.Persist(taken); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a := mustRun(t, persistTo(t, first, ""))
	err := run(t, persistTo(t, taken, ""))
	if err == nil || !strings.Contains(err.Error(), taken) || !strings.Contains(err.Error(), "another Caddy with the same persist directory is running; give each its own") {
		t.Errorf("got %v", err)
	}
	if active() != a || process().Dir() != first {
		t.Errorf("the config before does not go on: its directory is %q", process().Dir())
	}
}

func TestCountsOfANewerVersionAreNotOverwritten(t *testing.T) {
	dir := dataDir(t)
	mustRun(t, persistTo(t, dir, ""))
	stop(t)()
	if err := process().Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "counters.log")
	newer := []byte("LLMLOG\x01\x63\x78\x98\x83\xd3") // records of version 99
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t, persistTo(t, dir, ""))
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "written by a newer version") {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, newer) {
		t.Errorf("the file is now %q (%v)", data, err)
	}
}

func TestADirectoryThatCannotBeUsedIsWarnedOf(t *testing.T) {
	file := filepath.Join(dataDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := mustRun(t, persistTo(t, filepath.Join(file, "dir"), ""))
	for _, want := range []string{"in memory only", file, "not a directory"} {
		if !strings.Contains(testLog.String(), want) {
			t.Errorf("the log lacks %q: %s", want, testLog.String())
		}
	}
	charge(t, a, "persisted", file, 5, true) // which counts all the same
}

// A config that names a directory which does not have what was counted is not to be the one
// that the next process starts with: all budgets would begin at nothing.
func TestAReloadToADirectoryThatCannotTakeAllIsRefused(t *testing.T) {
	blocked := t.TempDir() // is no place for a file of keys, as is found once that of counts is there
	if err := os.MkdirAll(filepath.Join(blocked, "keys.log", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, next := range map[string]string{"one that cannot be made": filepath.Join(file, "dir"), "one that takes a part": blocked} {
		t.Run(name, func(t *testing.T) {
			dir := dataDir(t)
			a := mustRun(t, adaptedTo(t, dir))
			charge(t, a, "persisted", dir, 5, false)
			err := run(t, adaptedTo(t, next))
			if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), next) {
				t.Errorf("got %v", err)
			}
			if active() != a || process().Dir() != dir {
				t.Errorf("the config before does not go on: its directory is %q", process().Dir())
			}
			charge(t, a, "persisted", dir, 6, false)
			if err := process().Sync(); err != nil {
				t.Fatal(err)
			}
			if got := restarted(t, dir, "persisted", dir); got != 11 {
				t.Errorf("a restart finds %d tokens used", got)
			}
			other := filepath.Join(t.TempDir(), "other")
			mustRun(t, adaptedTo(t, other))
			if got := process().Dir(); got != other {
				t.Errorf("after a reload to one that can, counts are written to %q", got)
			}
		})
	}
}

func TestDamageIsWarnedOf(t *testing.T) {
	dir := dataDir(t)
	a := mustRun(t, persistTo(t, dir, ""))
	charge(t, a, "persisted", dir, 5, false)
	stop(t)()
	if err := process().Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "counters.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("half a record"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	mustRun(t, persistTo(t, dir, ""))
	if log := testLog.String(); !strings.Contains(log, "its end was cut off") || !strings.Contains(log, `"dropped_bytes":13`) {
		t.Errorf("the log is %s", log)
	}
}

func TestAConfigThatDoesNotStartLeavesTheDirectory(t *testing.T) {
	first, second := dataDir(t), dataDir(t)
	a := mustRun(t, persistTo(t, first, ""))
	charge(t, a, "persisted", first, 5, false)
	// Caddy starts the apps in any order: again, until this one was the last
	moved := false
	failStart = func() error {
		moved = process().Dir() == second
		return errStart
	}
	for i := 0; !moved; i++ {
		if i == 200 {
			t.Fatal("the llm app never started before the one that fails")
		}
		if err := run(t, persistTo(t, second, `,"test_failing":{}`)); err == nil {
			t.Fatal("it started")
		}
	}
	if got := process().Dir(); got != first || counts(t, second) {
		t.Errorf("counts are written to %q", got)
	}
	if got := restarted(t, first, "persisted", first); got != 5 {
		t.Errorf("a restart finds %d tokens used", got)
	}
}

// Keys that are on a disk that cannot be read are not unknown.
func TestADirectoryThatCannotBeUsedIsNoneForKeys(t *testing.T) {
	dir := dataDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for persist, refused := range map[string]bool{file: true, persistOff: false, filepath.Join(dir, "good"): false} {
		if err := process().Close(); err != nil {
			t.Fatal(err)
		}
		a := &App{store: &Memory{Persist: persist}, shared: &shared{counters: process()}}
		m := a.store.(*Memory)
		if err := m.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		_, _ = process().Persist(m.dir)
		if err := a.checkKeys(); err != nil {
			t.Errorf("%s without keys: %v", persist, err)
		}
		a.UseKeys()
		if err := a.checkKeys(); (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "persist off") {
			t.Errorf("%s: got %v, want it refused %t", persist, err, refused)
		}
	}
}
