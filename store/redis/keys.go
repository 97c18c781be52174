package redis

import (
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// API keys are in one slot of a cluster, under names that no counter has:
//
//	<prefix>{!keys}!records   hash    the record of each key, by id
//	<prefix>{!keys}!hashes    hash    the id that each secret's hash leads to
//	<prefix>{!keys}!log       zset    ids by revision, of keys that were deleted too
//	<prefix>{!keys}!ids       zset    ids of the keys that there are
//	<prefix>{!keys}!meta      hash    the last revision, and the sum over all
//	<prefix>{!keys}!gone      zset    ids of keys that were deleted, by when
//
// A record is the hashes of the key's two secrets in base64, the second blank where
// there is one alone, and what store.Key.Record says.

var (
	//go:embed keyswrite.lua
	keysWriteLua string
	//go:embed keysread.lua
	keysReadLua string
)

// tries is how often a command is sent whose reply is lost with its connection.
const tries = 3

// hashDigits is how long a hash is in base64.
const hashDigits = 43

// Keys are the API keys in Redis.
type Keys struct {
	s           *Store
	names       []string
	read, write *script
	expired     *script
}

// Keys are the keys that are kept beside the counters. After Close they fail.
func (s *Store) Keys() store.Keys {
	k := &Keys{s: s, read: newScript(keysReadLua), write: newScript(keysWriteLua), expired: newScript(keysExpiredLua)}
	for _, name := range []string{"records", "hashes", "log", "ids", "meta", "gone"} {
		k.names = append(k.names, s.prefix+"{!keys}!"+name)
	}
	return k
}

// Durable tells that keys outlive the process.
func (*Keys) Durable() bool { return true }

// errPartial is that of keys of which nobody can say whether they are there.
var errPartial = fmt.Errorf("asking Redis for keys: a part of them is lost, as by eviction: %w", store.ErrUnavailable)

// Get implements store.Keys.
func (k *Keys) Get(ctx context.Context, id string) (store.Key, error) {
	return k.one(ctx, "get", id)
}

// Find implements store.Keys.
func (k *Keys) Find(ctx context.Context, hash store.KeyHash) (store.Key, error) {
	return k.one(ctx, "find", base64.RawURLEncoding.EncodeToString(hash[:]))
}

func (k *Keys) one(ctx context.Context, how, which string) (store.Key, error) {
	ch, err := k.choose(ctx, how, which)
	if err != nil {
		return store.Key{}, err
	}
	if len(ch.Keys) == 0 && ch.Partial {
		return store.Key{}, errPartial
	}
	if len(ch.Keys) == 0 {
		return store.Key{}, fmt.Errorf("reading a key: %w", store.ErrNoKey)
	}
	return ch.Keys[0], nil
}

// List implements store.Keys.
func (k *Keys) List(ctx context.Context, after string, n int) ([]store.Key, error) {
	ch, err := k.choose(ctx, "list", after, max(n, 0))
	return ch.Keys, err
}

// Changes implements store.Keys.
func (k *Keys) Changes(ctx context.Context, since int64, n int) (store.KeyChanges, error) {
	return k.choose(ctx, "changes", since, max(n, 0))
}

// choose reads keys, and what there is to know of all.
func (k *Keys) choose(ctx context.Context, how string, args ...any) (store.KeyChanges, error) {
	cmd, _, err := k.run(ctx, k.read, append([]any{how}, args...))
	if err != nil {
		return store.KeyChanges{}, err
	}
	reply, err := cmd.StringSlice()
	if err != nil || len(reply) < 3 || len(reply)%3 != 0 {
		return store.KeyChanges{}, unanswered(errReply)
	}
	var ch store.KeyChanges
	var wrong [2]error
	ch.Sum, wrong[0] = strconv.ParseInt(reply[0], 10, 64)
	ch.Last, wrong[1] = strconv.ParseInt(reply[1], 10, 64)
	if errors.Join(wrong[:]...) != nil {
		return store.KeyChanges{}, unanswered(errReply)
	}
	ch.Partial = reply[2] != "0"
	ch.Keys = make([]store.Key, 0, len(reply)/3)
	for r := reply[3:]; len(r) > 0; r = r[3:] {
		key, err := parseKey(r[0], r[2])
		if err != nil {
			if how == "get" || how == "find" {
				return store.KeyChanges{}, err
			}
			key = store.Key{ID: r[0], Disabled: true} // lest one that is damaged hides the others
		}
		if key.Revision, err = strconv.ParseInt(r[1], 10, 64); err != nil {
			return store.KeyChanges{}, unanswered(errReply)
		}
		ch.Keys = append(ch.Keys, key)
	}
	return ch, nil
}

// parseKey reads a record. Of a key that was deleted it is empty.
func parseKey(id, record string) (store.Key, error) {
	if record == "" {
		return store.Key{ID: id, Deleted: true}, nil
	}
	if len(record) < 2*hashDigits {
		return store.Key{}, fmt.Errorf("reading the key %q: its record is too short: %w", id, store.ErrUnavailable)
	}
	key, err := store.ParseKey([]byte(record[2*hashDigits:]))
	if err != nil {
		return store.Key{}, fmt.Errorf("%w: %w", err, store.ErrUnavailable)
	}
	return key, nil
}

// Put implements store.Keys.
func (k *Keys) Put(ctx context.Context, key store.Key) (int64, error) {
	answer, _, err := k.change(ctx, "put", key.ID, keyRecord(&key), key.Revision)
	if err == nil {
		var revision int64
		if revision, err = parseRevision(answer); err == nil {
			return revision, nil
		}
	}
	return 0, fmt.Errorf("storing the key %q: %w", key.ID, err)
}

func keyRecord(key *store.Key) string {
	var b strings.Builder
	b.WriteString(base64.RawURLEncoding.EncodeToString(key.Hash[:]))
	if key.Until.IsZero() {
		b.WriteString(strings.Repeat(" ", hashDigits))
	} else {
		b.WriteString(base64.RawURLEncoding.EncodeToString(key.Previous[:]))
	}
	b.Write(key.Record())
	return b.String()
}

func parseRevision(answer string) (int64, error) {
	switch answer {
	case "taken":
		return 0, store.ErrKeyTaken
	case "changed":
		return 0, store.ErrKeyChanged
	}
	digits, ok := strings.CutPrefix(answer, "ok ")
	revision, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return 0, unanswered(errReply)
	}
	return revision, nil
}

// Delete implements store.Keys.
func (k *Keys) Delete(ctx context.Context, id string) error {
	answer, again, err := k.change(ctx, "delete", id)
	if err == nil && answer == "none" && !again { // else it may have been deleted just now
		err = store.ErrNoKey
	}
	if err != nil {
		return fmt.Errorf("deleting a key: %w", err)
	}
	return nil
}

// change runs the script that writes. It tells whether it was sent more than once.
func (k *Keys) change(ctx context.Context, args ...any) (answer string, again bool, err error) {
	cmd, again, err := k.run(ctx, k.write, args)
	if err != nil {
		return "", again, err
	}
	answer, err = cmd.Text()
	if err != nil {
		return "", again, unanswered(errReply)
	}
	return answer, again, nil
}

// run runs a script. It can be sent again if its reply is lost: what it has changed
// then it finds changed.
func (k *Keys) run(ctx context.Context, sc *script, args []any) (cmd command, again bool, err error) {
	if k.s.closed.Load() {
		return cmd, false, errKeysClosed
	}
	ctx, cancel := context.WithTimeout(ctx, k.s.timeout)
	defer cancel()
	for i := range tries {
		cmd = k.once(ctx, sc, args)
		if err = cmd.Err(); err == nil {
			return cmd, i > 0, nil
		}
		if !lost(err) {
			break
		}
	}
	if k.s.closed.Load() {
		return cmd, true, errKeysClosed // which may have ended the connection
	}
	return cmd, true, unanswered(err)
}

var errKeysClosed = fmt.Errorf("asking Redis for keys: %w", store.ErrKeysClosed)

// unanswered says in a word or two why the server could not be asked, as unavailable
// does of counters.
func unanswered(err error) error {
	return fmt.Errorf("asking Redis for keys: %s: %w", reason(err), store.ErrUnavailable)
}

func (k *Keys) once(ctx context.Context, sc *script, args []any) command {
	all := []any{"evalsha", sc.sum, len(k.names)}
	for _, name := range k.names {
		all = append(all, name)
	}
	all = append(all, args...)
	cmd := command{goredis.NewCmd(ctx, all...)}
	_ = k.s.client.Process(ctx, cmd) // the error is the command's, too
	if goredis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		all[0], all[1] = "eval", sc.source
		cmd = command{goredis.NewCmd(ctx, all...)}
		_ = k.s.client.Process(ctx, cmd)
	}
	return cmd
}

// Interface guard
var _ store.Keys = (*Keys)(nil)
