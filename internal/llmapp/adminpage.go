package llmapp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// lister lists consumers of an instance, as store.Counters.Entities does.
type lister func(ctx context.Context, instance, after string, n int) ([]store.Entity, error)

// walk visits the entities that the parameters of a request ask for, at most a page of
// those that are listed: of all instances or of one, all or those of one consumer, after
// those of the page before. Where there are more, the Link field of the answer leads on.
func (a *App) walk(w http.ResponseWriter, r *http.Request, list lister, visit func(Instance, store.Entity) error) error {
	q, err := parameters(r, "instance", "consumer", "after")
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	after, err := parseCursor(q.Get("after"))
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	instances := a.list()
	if id := q.Get("instance"); id != "" {
		in, err := a.instanceOf(id)
		if err != nil {
			return err
		}
		instances = []Instance{in}
	}
	room := pageSize
	for _, in := range instances {
		if in.ID() < after.instance {
			continue
		}
		if room == 0 {
			setNext(w, r, q, cursor{instance: in.ID()})
			return nil
		}
		from := ""
		if in.ID() == after.instance {
			from = after.consumer
		}
		entities, more, err := entitiesOf(r.Context(), list, in, q.Get("consumer"), from, room)
		if err != nil {
			return apiError(http.StatusServiceUnavailable, err)
		}
		for _, e := range entities {
			if err := visit(in, e); err != nil {
				return apiError(http.StatusServiceUnavailable, err)
			}
		}
		room -= len(entities)
		if more {
			setNext(w, r, q, cursor{in.ID(), entities[len(entities)-1].Consumer})
			return nil
		}
	}
	return nil
}

// parameters are those of a request, which has none but the known ones.
func parameters(r *http.Request, known ...string) (url.Values, error) {
	q := r.URL.Query()
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown parameter %q: there are %s", name, strings.Join(known, ", "))
		}
	}
	return q, nil
}

// setNext says where the next page begins.
func setNext(w http.ResponseWriter, r *http.Request, q url.Values, next cursor) {
	q.Set("after", next.String())
	w.Header().Set("Link", `<`+r.URL.Path+`?`+q.Encode()+`>; rel="next"`)
}

// entitiesOf returns an instance's entities after a consumer, and whether there are
// more than n.
func entitiesOf(ctx context.Context, list lister, in Instance, consumer, after string, n int) (es []store.Entity, more bool, err error) {
	if in.Shared() {
		if consumer != "" || after != "" {
			return nil, false, nil
		}
		return []store.Entity{{Instance: in.ID()}}, false, nil
	}
	if consumer != "" {
		return []store.Entity{{Instance: in.ID(), Consumer: consumer}}, false, nil
	}
	es, err = list(ctx, in.ID(), after, n+1)
	if err != nil {
		return nil, false, err
	}
	if len(es) > n {
		return es[:n], true, nil
	}
	return es, false, nil
}

// cursor is where a page ended: after a consumer of an instance, or, where that is
// empty, before all of them.
type cursor struct{ instance, consumer string }

func (c cursor) String() string {
	return url.PathEscape(c.instance) + "/" + url.PathEscape(c.consumer)
}

var errCursor = errors.New("after is not a value that an earlier answer gave")

func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return c, nil
	}
	in, consumer, ok := strings.Cut(s, "/")
	if !ok {
		return c, errCursor
	}
	if c.instance, err = url.PathUnescape(in); err != nil {
		return c, errCursor
	}
	if c.consumer, err = url.PathUnescape(consumer); err != nil {
		return c, errCursor
	}
	return c, nil
}
