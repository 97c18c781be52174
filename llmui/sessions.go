package llmui

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"sync"
)

const (
	// cookie is the name of the cookie that a session has.
	cookie = "llm_ui"
	// csrfField is the header field that each request of the page's scripts carries. Other
	// origins can neither read its value nor send the field.
	csrfField = "X-Csrf-Token"

	used = "This link has been used, or is not the last one. Press Enter where caddy llm-ui runs for another."
)

// secret is 256 bits that nobody can guess, as text for a URL.
func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// sessions are the browsers that came with a link. They end with the process.
type sessions struct {
	mu    sync.Mutex
	token [sha256.Size]byte            // hash of the link's; zero once it is used
	open  map[[sha256.Size]byte]string // the CSRF token, by hash of the cookie
}

func newSessions() *sessions {
	return &sessions{open: make(map[[sha256.Size]byte]string)}
}

// link returns a token that opens one session. It takes the place of the last one.
func (ss *sessions) link() string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	token := secret()
	ss.token = sha256.Sum256([]byte(token))
	return token
}

// enter opens a session for a token and returns the cookie's value.
func (ss *sessions) enter(token string) (id string, ok bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	got := sha256.Sum256([]byte(token))
	if ss.token == ([sha256.Size]byte{}) || subtle.ConstantTimeCompare(got[:], ss.token[:]) != 1 {
		return "", false
	}
	ss.token = [sha256.Size]byte{}
	id = secret()
	ss.open[sha256.Sum256([]byte(id))] = secret()
	return id, true
}

// csrf is the token of a request's session, empty if it has none.
func (ss *sessions) csrf(r *http.Request) string {
	c, err := r.Cookie(cookie)
	if err != nil {
		return ""
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.open[sha256.Sum256([]byte(c.Value))]
}

// refuses says why a request is refused, or nothing. Those of scripts have the CSRF
// token beside the cookie.
func (ss *sessions) refuses(r *http.Request, script bool) string {
	want := ss.csrf(r)
	if want == "" {
		return "There is no session here. Press Enter where caddy llm-ui runs for a link."
	}
	if !script {
		return ""
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(csrfField)), []byte(want)) != 1 {
		return "The field " + csrfField + " is missing or wrong."
	}
	return ""
}
