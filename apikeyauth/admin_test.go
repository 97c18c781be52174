package apikeyauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// ask asks the admin endpoint as Caddy's router does. An error's text is the body.
func ask(t testing.TB, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	for _, route := range new(Admin).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			err := route.Handler.ServeHTTP(w, r)
			var api caddy.APIError
			if errors.As(err, &api) {
				w.WriteHeader(api.HTTPStatus)
				fmt.Fprint(w, err)
			} else if err != nil {
				t.Errorf("%s %s: %v", method, target, err)
			}
		})
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return w
}

// asked is ask for an answer of a status, which is decoded.
func asked(t testing.TB, status int, method, target, body string, into any) *httptest.ResponseRecorder {
	t.Helper()
	w := ask(t, method, target, body)
	if w.Code != status {
		t.Fatalf("%s %s %s: got %d: %s", method, target, body, w.Code, w.Body)
	}
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s %s: %v in %s", method, target, err, w.Body)
		}
	}
	return w
}

func TestIssuingListingRotatingRevoking(t *testing.T) {
	h := &Handler{}
	serveStored(t, h)
	admitted := func(key string) bool {
		t.Helper()
		_, next := callWith(t, h, key)
		return next.called
	}
	var first issued
	w := asked(t, http.StatusCreated, "POST", "/llm/keys", `{"application":"app-1","group":"gold","models":["gpt-*"],"expires":"2100-01-02"}`, &first)
	if !apikey.Valid(first.Key) || !storedID.MatchString(first.ID) || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %+v, %v", first, w.Header())
	}
	var members map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &members); err != nil || !slices.Equal(slices.Sorted(maps.Keys(members)), []string{"id", "key"}) {
		t.Errorf("got the members %v", members)
	}
	var second issued
	asked(t, http.StatusCreated, "POST", "/llm/keys", `{"id":"team.b_1"}`, &second)
	if second.ID != "team.b_1" || !admitted(second.Key) {
		t.Errorf("got %+v", second)
	}

	var rows []map[string]any
	w = asked(t, http.StatusOK, "GET", "/llm/keys", "", &rows)
	if len(rows) != 2 || rows[0]["id"] != first.ID || rows[1]["id"] != "team.b_1" {
		t.Fatalf("got %s", w.Body)
	}
	want := []string{"application", "created", "disabled", "expires", "group", "id", "models", "previous_until"}
	if got := slices.Sorted(maps.Keys(rows[0])); !slices.Equal(got, want) {
		t.Errorf("got the members %q, want %q", got, want)
	}
	if r := rows[0]; r["application"] != "app-1" || r["group"] != "gold" || fmt.Sprint(r["models"]) != "[gpt-*]" || r["expires"] != "2100-01-02T00:00:00Z" || r["disabled"] != false || r["previous_until"] != nil {
		t.Errorf("got %v", r)
	}
	if r := rows[1]; r["models"] != nil || r["expires"] != nil || r["application"] != "" {
		t.Errorf("got %v", r)
	}

	var next issued
	asked(t, http.StatusOK, "POST", "/llm/keys/team.b_1/rotate", `{"grace":"1h"}`, &next)
	if !apikey.Valid(next.Key) || next.Key == second.Key || next.ID != "" || !admitted(next.Key) || !admitted(second.Key) {
		t.Error("after a rotation with grace both work")
	}
	asked(t, http.StatusOK, "GET", "/llm/keys?after="+first.ID, "", &rows)
	if until, _ := time.Parse(time.RFC3339, fmt.Sprint(rows[0]["previous_until"])); len(rows) != 1 || time.Until(until).Round(time.Minute) != time.Hour {
		t.Errorf("got %v", rows)
	}
	var last issued
	asked(t, http.StatusOK, "POST", "/llm/keys/team.b_1/rotate", `{"grace":"0s"}`, &last)
	if admitted(next.Key) || admitted(second.Key) || !admitted(last.Key) {
		t.Error("after a rotation without grace only the new one works")
	}
	if w := asked(t, http.StatusNoContent, "DELETE", "/llm/keys/team.b_1", "", nil); w.Body.Len() > 0 {
		t.Errorf("got %s", w.Body)
	}
	if admitted(last.Key) {
		t.Error("a revoked key works")
	}
	if got := ask(t, "DELETE", "/llm/keys/team.b_1", ""); got.Code != http.StatusNotFound {
		t.Errorf("revoked again: %d", got.Code)
	}
	asked(t, http.StatusOK, "POST", "/llm/keys/"+first.ID+"/rotate", "", &next)
	asked(t, http.StatusOK, "GET", "/llm/keys", "", &rows)
	if until, _ := time.Parse(time.RFC3339, fmt.Sprint(rows[0]["previous_until"])); time.Until(until).Round(time.Minute) != defaultGrace {
		t.Errorf("without a word of it the grace ends %v", rows[0]["previous_until"])
	}
}

func TestAdminErrorsNameTheField(t *testing.T) {
	h := &Handler{Keys: []Key{{ID: "stated", Hash: hashOf("key-stated")}}}
	serveStored(t, h)
	secret := apikey.New()
	asked(t, http.StatusCreated, "POST", "/llm/keys", `{"id":"there"}`, nil)
	for _, tc := range []struct {
		name, method, target, body string
		status                     int
		want                       string
	}{
		{"no JSON", "POST", "/llm/keys", `{`, 400, "not valid JSON"},
		{"a list", "POST", "/llm/keys", `[]`, 400, "must be an object"},
		{"unknown field", "POST", "/llm/keys", `{"app":"x"}`, 400, `unknown field "app"`},
		{"field twice", "POST", "/llm/keys", `{"group":"x","Group":"y"}`, 400, `field "group" is given twice`},
		{"field of another type", "POST", "/llm/keys", `{"group":5}`, 400, `field "group" has the wrong type`},
		{"reserved application", "POST", "/llm/keys", `{"application":"default"}`, 400, `application "default" is reserved`},
		{"odd application", "POST", "/llm/keys", `{"application":"/x"}`, 400, "application must not start with"},
		{"odd group", "POST", "/llm/keys", `{"group":" x"}`, 400, "group must be printable"},
		{"no models", "POST", "/llm/keys", `{"models":[]}`, 400, "models must not be empty"},
		{"null models", "POST", "/llm/keys", `{"models":null}`, 400, "models must not be empty"},
		{"empty glob", "POST", "/llm/keys", `{"models":[""]}`, 400, "models must not contain an empty glob"},
		{"odd expiry", "POST", "/llm/keys", `{"expires":"tomorrow"}`, 400, "expires must be a date"},
		{"past expiry", "POST", "/llm/keys", `{"expires":"2020-01-01"}`, 400, `expires "2020-01-01" is over`},
		{"odd id", "POST", "/llm/keys", `{"id":"a/b"}`, 400, "id must be letters"},
		{"id with dots alone", "POST", "/llm/keys", `{"id":".."}`, 400, "id must be letters"},
		{"id that is a key", "POST", "/llm/keys", `{"id":"` + secret + `"}`, 400, "id holds an API key"},
		{"application that is a key", "POST", "/llm/keys", `{"application":"x` + secret + `"}`, 400, "application holds an API key"},
		{"model that is a key", "POST", "/llm/keys", `{"models":["` + secret + `"]}`, 400, "models holds an API key"},
		{"id that is there", "POST", "/llm/keys", `{"id":"there"}`, 409, `id "there" is already that of another key`},
		{"id in the configuration", "POST", "/llm/keys", `{"id":"stated"}`, 409, `id "stated" is already that of keys[0] of the configuration`},
		{"too large", "POST", "/llm/keys", `{"group":"` + strings.Repeat("x", bodyMost) + `"}`, 413, "larger than"},
		{"odd grace", "POST", "/llm/keys/there/rotate", `{"grace":"soon"}`, 400, "grace must be a duration"},
		{"negative grace", "POST", "/llm/keys/there/rotate", `{"grace":"-1s"}`, 400, "grace must be a duration"},
		{"grace for ever", "POST", "/llm/keys/there/rotate", `{"grace":"91d"}`, 400, "grace must be a duration"},
		{"grace as a number", "POST", "/llm/keys/there/rotate", `{"grace":60}`, 400, `field "grace" has the wrong type`},
		{"odd end", "POST", "/llm/keys/there/rotate", `{"end":"both"}`, 400, "end must be"},
		{"rotating what there is not", "POST", "/llm/keys/nobody/rotate", `{}`, 404, "no key of that id"},
		{"rotating a stated key", "POST", "/llm/keys/stated/rotate", `{}`, 404, "no key of that id"},
		{"revoking by the key", "DELETE", "/llm/keys/" + secret, "", 400, "not the id of a key"},
		{"rotating by the key", "POST", "/llm/keys/" + secret + "/rotate", "{}", 400, "not the id of a key"},
		{"an action that is a key", "POST", "/llm/keys/there/" + secret, "", 400, "not the id of a key"},
		{"listing after a key", "GET", "/llm/keys?after=" + secret, "", 400, "not the id of a key"},
		{"an id that is too long", "DELETE", "/llm/keys/" + strings.Repeat("x", 129), "", 400, "not the id of a key"},
		{"unknown parameter", "GET", "/llm/keys?page=2", "", 400, "after"},
		{"method of all", "DELETE", "/llm/keys", "", 405, "method DELETE"},
		{"method of one", "PUT", "/llm/keys/there", "", 405, "method PUT"},
		{"method of a rotation", "GET", "/llm/keys/there/rotate", "", 405, "method GET"},
		{"unknown action", "POST", "/llm/keys/there/enable", "", 404, "rotate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ask(t, tc.method, tc.target, tc.body)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d: %s\nwant %d: %s", w.Code, w.Body, tc.status, tc.want)
			}
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("a key shows: %s", w.Body)
			}
		})
	}
}

func TestExpiredKeysAreNotRotated(t *testing.T) {
	b, _ := serveStored(t, &Handler{})
	k := keyRequest{ID: "old"}
	key, err := k.key(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key.Expires = time.Now().Add(-time.Hour)
	stored(t, b, key)
	if w := ask(t, "POST", "/llm/keys/old/rotate", ""); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "has expired") {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
}

// The answer to a rotation may be lost: who rotates again must not end the one secret
// that somebody has.
func TestRotatingAgainWithinTheGrace(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		status     int
		works      [3]bool // the first secret, that of the first rotation, that of the second
	}{
		{"nothing said", `{}`, http.StatusConflict, [3]bool{true, true, false}},
		{"ending the previous", `{"end":"previous"}`, http.StatusOK, [3]bool{false, true, true}},
		{"ending the current", `{"end":"current","grace":"2h"}`, http.StatusOK, [3]bool{true, false, true}},
		{"without grace", `{"grace":"0s"}`, http.StatusOK, [3]bool{false, false, true}},
		{"without grace, ending the current", `{"grace":"0s","end":"current"}`, http.StatusOK, [3]bool{false, false, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Handler{}
			serveStored(t, h)
			var keys [3]issued
			asked(t, http.StatusCreated, "POST", "/llm/keys", `{"id":"k"}`, &keys[0])
			asked(t, http.StatusOK, "POST", "/llm/keys/k/rotate", `{"grace":"1h"}`, &keys[1])
			w := ask(t, "POST", "/llm/keys/k/rotate", tc.body)
			if w.Code != tc.status {
				t.Fatalf("got %d: %s", w.Code, w.Body)
			}
			_ = json.Unmarshal(w.Body.Bytes(), &keys[2])
			for i, want := range tc.works {
				if _, err := h.find(t.Context(), keys[i].Key); (err == nil) != want {
					t.Errorf("secret %d: %v, want it to work %t", i, err, want)
				}
			}
		})
	}
}

// A change whose answer is lost is sent again, and the key is in the answer.
func TestAChangeThatTheStoreDoesNotConfirm(t *testing.T) {
	h := &Handler{}
	b, _ := serveStored(t, h)
	for _, made := range []bool{false, true} {
		b.unsure.Store(putTries - 1)
		b.made.Store(made)
		var key, next issued
		asked(t, http.StatusCreated, "POST", "/llm/keys", fmt.Sprintf(`{"id":"k%t"}`, made), &key)
		b.unsure.Store(1)
		asked(t, http.StatusOK, "POST", fmt.Sprintf("/llm/keys/k%t/rotate", made), "", &next)
		for _, secret := range []string{key.Key, next.Key} {
			if _, err := h.find(t.Context(), secret); err != nil {
				t.Errorf("made %t: %v", made, err)
			}
		}
	}
}

// Whoever asks may have gone: the change is made whole.
func TestAChangeOutlivesItsRequest(t *testing.T) {
	h := &Handler{}
	b, _ := serveStored(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, err := running()
	if err != nil {
		t.Fatal(err)
	}
	b.heed.Store(true)
	if err := in.put(ctx, store.Key{ID: "k", Hash: apikey.Hash("k")}); err != nil {
		t.Error(err)
	}
}

func TestOfTwoWhoRotateAtOnceOneIsTold(t *testing.T) {
	h := &Handler{}
	serveStored(t, h)
	asked(t, http.StatusCreated, "POST", "/llm/keys", `{"id":"k"}`, nil)
	var wg sync.WaitGroup
	codes := make([]int, 8)
	keys := make([]issued, len(codes))
	for i := range codes {
		wg.Go(func() {
			w := ask(t, "POST", "/llm/keys/k/rotate", `{"grace":"0s"}`)
			codes[i] = w.Code
			_ = json.Unmarshal(w.Body.Bytes(), &keys[i])
		})
	}
	wg.Wait()
	works := 0
	for i, code := range codes {
		if code != http.StatusOK && code != http.StatusConflict {
			t.Errorf("got %d", code)
		}
		if keys[i].Key == "" {
			continue
		}
		if _, err := h.find(t.Context(), keys[i].Key); err == nil {
			works++
		}
	}
	if works != 1 { // who came after another had ended has rotated again
		t.Errorf("%d keys work", works)
	}
}

func TestListingInPages(t *testing.T) {
	defer func(n int) { pageSize = n }(pageSize)
	pageSize = 3
	serveStored(t, &Handler{})
	for i := range 7 {
		asked(t, http.StatusCreated, "POST", "/llm/keys", fmt.Sprintf(`{"id":"k%d"}`, i), nil)
	}
	var ids []string
	for next := "/llm/keys"; next != ""; {
		var page []keyRow
		w := asked(t, http.StatusOK, "GET", next, "", &page)
		for _, r := range page {
			ids = append(ids, r.ID)
		}
		next = nextPage(w.Header().Get("Link"))
	}
	if want := []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6"}; !slices.Equal(ids, want) {
		t.Errorf("got %q", ids)
	}
}

func TestAdminWithoutAStoreOfKeysSaysWhatToWrite(t *testing.T) {
	for _, target := range []string{"GET /llm/keys", "POST /llm/keys", "POST /llm/keys/a/rotate", "DELETE /llm/keys/a"} {
		method, path, _ := strings.Cut(target, " ")
		if w := ask(t, method, path, ""); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "write keys_store into its block") {
			t.Errorf("%s: got %d: %s", target, w.Code, w.Body)
		}
	}
}

func TestAdminWhileTheStoreIsAway(t *testing.T) {
	b, _ := serveStored(t, &Handler{})
	b.down.Store(true)
	for _, target := range []string{"POST /llm/keys", "POST /llm/keys/a/rotate"} {
		method, path, _ := strings.Cut(target, " ")
		if w := ask(t, method, path, ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "timeout") {
			t.Errorf("%s: got %d: %s", target, w.Code, w.Body)
		}
	}
}

func FuzzKeyRequest(f *testing.F) {
	f.Add(`{"id":"a","application":"b","group":"c","models":["d"],"expires":"2100-01-01","disabled":true}`)
	f.Add(`{"grace":"1h"}`)
	f.Fuzz(func(t *testing.T, body string) {
		var req keyRequest
		if err := readBody(httptest.NewRequest("POST", "/llm/keys", io.NopCloser(strings.NewReader(body))), &req); err != nil {
			return
		}
		k, err := req.key(start)
		if err != nil {
			return
		}
		if _, err := grantOf(&k); err != nil || apikey.Looks(k.ID) {
			t.Errorf("%q makes the key %+v, which cannot be used (%v)", body, k, err)
		}
	})
}
