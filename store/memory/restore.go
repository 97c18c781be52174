package memory

import (
	"cmp"
	"math"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// Restored tells what Persist found in a directory.
type Restored struct {
	// Entities whose counters are not over.
	Entities int
	// Dropped is how many bytes at the end of the file were damaged, such as by a
	// crash in the middle of a write, and were cut off.
	Dropped int64
	// SetAside is where a file is now whose beginning was damaged, empty if it was
	// not.
	SetAside string
	// Unread is how many records were whole but could not be understood, such as
	// those of a time zone that this machine does not have.
	Unread int
	// Reason is why the first of those could not.
	Reason error
	// Keys are the API keys that were found. KeysDropped and KeysSetAside tell of their
	// file what Dropped and SetAside tell of that of the counts.
	Keys         int
	KeysDropped  int64
	KeysSetAside string
	// KeysUnread is how many records of keys were whole and said nothing, not even whose
	// they were. One that says that is among the keys, as damaged.
	KeysUnread int
}

// loading collects the records of a file, in shards as those of the store, which
// goes on meanwhile.
type loading struct {
	s      *Store
	now    int64
	in     *decoder
	shards *[shards]shard
	bytes  int64 // of all records
	found  Restored
	own    bool // what is read now was written by this process
	known  bool // some of it was
}

func (s *Store) newLoading() *loading {
	return &loading{s: s, now: s.now().UnixMilli(), in: newDecoder(), shards: new([shards]shard)}
}

// visit takes a record in, in the place of those before it of the same entity.
func (l *loading) visit(record []byte) error {
	l.bytes += int64(len(record))
	if isMark(record) {
		l.mark(record)
		return nil
	}
	if l.own {
		return nil
	}
	if isOverrides(record) {
		l.visitOverrides(record)
		return nil
	}
	name, counters, ok := l.read(record)
	if !ok {
		return nil
	}
	hash, _ := l.s.shard(name)
	sh := &l.shards[hash>>(64-shardBits)]
	e := sh.find(hash, name)
	live := counters[:0]
	for _, c := range counters {
		if l.live(&c) {
			live = append(live, c)
		}
	}
	switch {
	case len(live) == 0 && e != nil:
		sh.drop(hash, e)
		l.found.Entities--
	case len(live) > 0:
		if e == nil {
			e = sh.insert(hash, name, len(live))
			l.found.Entities++
		}
		e.counters = append(e.counters[:0], live...)
		e.expires = e.end(l.now)
		sh.ends.fix(int(e.place))
	}
	return nil
}

// visitOverrides takes the limits of an entity's own, in the place of those before.
func (l *loading) visitOverrides(record []byte) {
	name, limits, err := l.in.decodeOverrides(record)
	if err != nil {
		l.unread(err)
		return
	}
	hash, _ := l.s.shard(name)
	sh := &l.shards[hash>>(64-shardBits)]
	delete(sh.own.limits, name)
	for rule, limit := range limits {
		sh.own.set(name, rule, &limit)
	}
}

// read reads a record, or notes why it cannot be read. The others are good all the
// same.
func (l *loading) read(record []byte) (name store.Entity, counters []ruleCounter, ok bool) {
	name, counters, err := l.in.decode(record)
	if err != nil {
		l.unread(err)
	}
	return name, counters, err == nil
}

func (l *loading) unread(err error) {
	l.found.Unread++
	l.found.Reason = cmp.Or(l.found.Reason, err)
}

// live tells whether a counter still says something, rolled to now.
func (l *loading) live(c *ruleCounter) bool {
	r := c.rule.Value()
	// A window further ahead than the next was begun by a clock that was wrong. What
	// was used counts for the current one, or it would stay for as long, and what was used
	// in the one before it for the one before.
	if c.Start > l.now+r.Window.Length().Milliseconds() {
		if r.Window.Kind() == store.KindBucket {
			c.Start, c.Prev = l.now, 0
		} else {
			c.Start, _ = r.Window.Span(l.now)
		}
	}
	c.Roll(&r, l.now)
	return c.Idle(&r, l.now) > l.now
}

// adopt puts what was loaded into the store, whether there is room or not, and
// notes all that a file has yet to be told. What both have is added up where sum is
// set, as of a process before this one; else the larger counts.
func (s *Store) adopt(l *loading, sum bool) {
	for i := range s.shards {
		sh, from := &s.shards[i], &l.shards[i]
		sh.mu.Lock()
		for _, e := range sh.ends {
			sh.touch(e) // not known to the file
		}
		if len(sh.ends) == 0 {
			sh.byHash, sh.ends = from.byHash, from.ends
			s.count.Add(int64(len(sh.ends)))
		} else {
			s.merge(sh, from, l.now, sum)
		}
		sh.own.join(&from.own)
		sh.note()
		sh.mu.Unlock()
	}
}

func (s *Store) merge(sh, from *shard, now int64, sum bool) {
	for _, o := range from.ends {
		name := store.Entity{Instance: o.instance.Value(), Consumer: o.consumer}
		hash, _ := s.shard(name)
		e := sh.find(hash, name)
		if e == nil {
			s.count.Add(1)
			e = sh.insert(hash, name, len(o.counters))
		}
		e.join(o, now, sum)
		e.expires = min(e.expires, e.end(now))
		sh.ends.fix(int(e.place))
		sh.touch(e)
	}
}

// join takes the counters of another entity of the same name in.
func (e *entity) join(o *entity, now int64, sum bool) {
	for _, c := range o.counters {
		r := c.rule.Value()
		i := e.find(&r, math.MaxInt)
		if i < 0 {
			e.counters = append(e.counters, c)
			continue
		}
		mine := &e.counters[i]
		r = mine.rule.Value()
		mine.Roll(&r, now)
		c.Roll(&r, now)
		mine.Start = max(mine.Start, c.Start)
		if !sum {
			mine.Used, mine.Prev = max(mine.Used, c.Used), max(mine.Prev, c.Prev)
			continue
		}
		mine.Used = counter.Add(mine.Used, c.Used)
		if r.Window.Kind() != store.KindBucket { // where it is a rest
			mine.Prev = counter.Add(mine.Prev, c.Prev)
		}
	}
}
