package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

// KeyHash is the SHA-256 of an API key. The key itself is never in a store.
type KeyHash = [sha256.Size]byte

// Key is an API key that was issued at run time.
type Key struct {
	// ID is the key's public name, unique in the store.
	ID string
	// Hash is that of the secret.
	Hash KeyHash
	// Application and Group are what its use counts for. Empty means none.
	Application, Group string
	// Models are globs of the models that it may use. Nil means all.
	Models []string
	// Expires is when it stops working, the zero time for never. Whole milliseconds,
	// like all times here.
	Expires time.Time
	// Disabled turns it off without forgetting it.
	Disabled bool
	// Previous is the hash of the secret before this one, which works until Until. The
	// zero time means that there is none.
	Previous KeyHash
	Until    time.Time
	// Created is when it was issued.
	Created time.Time

	// Revision is set by the store whenever the key is changed. It is above all that
	// any key there had before, near the Unix time in microseconds, and below 2^52.
	Revision int64
	// Deleted is set in KeyChanges alone, of a key of which nothing is left but its ID
	// and the revision that deleted it.
	Deleted bool
}

// KeepExpired is how long a key that has expired is kept, so that who asks why it does
// not work any more is told.
const KeepExpired = 30 * 24 * time.Hour

// Hashes are those of the secrets that lead to the key: the current one, and the
// previous one if there is one.
func (k *Key) Hashes() []KeyHash {
	if k.Until.IsZero() {
		return []KeyHash{k.Hash}
	}
	return []KeyHash{k.Hash, k.Previous}
}

// Keys is a store of API keys. It is safe for use by many goroutines and replicas.
//
// Each change is made whole or not at all, at one instant. Errors wrap ErrNoKey,
// ErrKeyTaken, ErrKeyChanged or ErrUnavailable. After ErrUnavailable a change may have
// been made all the same, or may be in force and not yet on the disk. No error holds a
// hash, or an id that may be a secret: one that was asked for and is no key's.
type Keys interface {
	// Get returns the key of that id, or ErrNoKey.
	Get(ctx context.Context, id string) (Key, error)

	// Find returns the key that a secret of that hash leads to, the current or the
	// previous one, whether or not it still works; or ErrNoKey.
	Find(ctx context.Context, hash KeyHash) (Key, error)

	// Put stores a key and returns its new revision. With Revision 0 it is a new one,
	// and ErrKeyTaken means that its id is another's. Else it takes the place of the
	// key of that id and revision: ErrKeyChanged means that somebody else has changed
	// or deleted that meanwhile. ErrKeyTaken is also the answer where one of its hashes
	// is another key's. What is stored already just so needs not be stored again, and
	// is no error.
	Put(ctx context.Context, k Key) (revision int64, err error)

	// Delete forgets a key, whoever has changed it meanwhile, or returns ErrNoKey.
	Delete(ctx context.Context, id string) error

	// Expire forgets all keys that have expired KeepExpired ago, by the store's clock, as
	// Delete does, and returns their ids. After an error these are some of them.
	Expire(ctx context.Context) (ids []string, err error)

	// List returns at most n keys in ascending order of their ids, and only those after
	// the given id.
	List(ctx context.Context, after string, n int) ([]Key, error)

	// Changes returns at most n keys that were changed or deleted after a revision, in
	// the order in which that happened, each as it is now. From revision 0 on these are
	// all keys. Fewer than n are all there are. Of deletions, those of the last hour are
	// among them at least: a reader who has missed one finds by Sum that it must begin
	// again.
	Changes(ctx context.Context, since int64, n int) (KeyChanges, error)
}

// KeyChanges are what a reader of keys has to catch up with.
type KeyChanges struct {
	Keys []Key
	// Sum is over all keys that the store has now. See AddRevision.
	Sum int64
	// Last is the highest revision that the store has ever given, 0 if it has never had
	// a key. To a reader who has some, 0 means that the store has lost all.
	Last int64
	// Partial means that a part of what the store keeps of its keys is lost, so that it
	// cannot say which there are. Only deletions are told then.
	Partial bool
}

// revisions are below it.
const revisions = 1 << 52

// AddRevision takes a key's revision into the sum over all keys: from is its former
// one, or 0, and to its new one, or 0. Two that have the same keys have the same sum,
// which starts at 0; two that have not, hardly ever. It needs no integer above 2^53, so
// that Lua can reckon with it.
func AddRevision(sum, from, to int64) int64 {
	if sum -= from; sum < 0 {
		sum += revisions
	}
	if sum += to; sum >= revisions {
		sum -= revisions
	}
	return sum
}

// ErrKeysClosed means that the store was closed, and will not be asked again. It wraps
// ErrUnavailable.
var ErrKeysClosed = fmt.Errorf("keys are closed: %w", ErrUnavailable)

var (
	// ErrNoKey means that there is no such key.
	ErrNoKey = errors.New("no such key")
	// ErrKeyTaken means that an id or a secret is another key's.
	ErrKeyTaken = errors.New("there is such a key already")
	// ErrKeyChanged means that somebody else has changed the key meanwhile.
	ErrKeyChanged = errors.New("the key has been changed meanwhile")
)
