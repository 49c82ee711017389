package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// User is a reader, as the API server names one.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string]authenticationv1.ExtraValue
}

// key names a user with all that rights depend on.
func (u *User) key() string {
	groups := slices.Clone(u.Groups)
	slices.Sort(groups)
	return fmt.Sprintf("%q %q %q %v", u.Name, u.UID, groups, u.Extra)
}

// Authenticator finds out who sends a request.
type Authenticator interface {
	// Authenticate returns the user, or an error that says what to do.
	Authenticate(r *http.Request) (*User, error)
	// Mode is local, token or proxy.
	Mode() string
}

// ErrNotSignedIn is the error of a request without an identity.
var ErrNotSignedIn = errors.New("not signed in")

// Local lets a person read who has the URL that the terminal printed.
type Local struct {
	// Token is part of that URL.
	Token string

	key    []byte
	cookie string
	now    func() time.Time
}

// localFor is how long a browser stays signed in.
const localFor = 12 * time.Hour

// NewLocal returns the access to a server of one person, on a port. A browser sends cookies
// to all ports of a host, and so their name has it.
func NewLocal(port int, now func() time.Time) *Local {
	return &Local{Token: rand.Text(), key: []byte(rand.Text()), cookie: "__Host-tranche-" + strconv.Itoa(port), now: now}
}

// Mode is "local".
func (l *Local) Mode() string { return "local" }

// SignIn exchanges the token of the URL for a cookie, and reports whether it is right.
func (l *Local) SignIn(w http.ResponseWriter, token string) bool {
	if subtle.ConstantTimeCompare([]byte(token), []byte(l.Token)) != 1 {
		return false
	}
	until := strconv.FormatInt(l.now().Add(localFor).Unix(), 10)
	setCookie(w, l.cookie, until+"."+l.sign(until))
	return true
}

func (l *Local) sign(text string) string {
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Authenticate checks the cookie.
func (l *Local) Authenticate(r *http.Request) (*User, error) {
	c, err := r.Cookie(l.cookie)
	if err != nil {
		return nil, fmt.Errorf("%w: open the URL that tranche dashboard printed", ErrNotSignedIn)
	}
	until, signature, _ := strings.Cut(c.Value, ".")
	if !hmac.Equal([]byte(signature), []byte(l.sign(until))) {
		return nil, fmt.Errorf("%w: open the URL that tranche dashboard printed", ErrNotSignedIn)
	}
	if seconds, err := strconv.ParseInt(until, 10, 64); err != nil || !l.now().Before(time.Unix(seconds, 0)) {
		return nil, fmt.Errorf("%w any more: open the URL again that tranche dashboard printed", ErrNotSignedIn)
	}
	return &User{Name: "you"}, nil
}

func setCookie(w http.ResponseWriter, name, value string) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// TokenCookie is the cookie with the bearer token of a reader.
const TokenCookie = "__Host-tranche-token"

// maxToken is the size that a browser keeps in a cookie.
const maxToken = 3800

// Token lets those read whom the API server knows by a bearer token.
type Token struct {
	client client.Client
	known  *memory[*User]
}

// NewToken returns that access.
func NewToken(c client.Client, now func() time.Time) *Token {
	return &Token{client: c, known: newMemory[*User](now)}
}

// Mode is "token".
func (t *Token) Mode() string { return "token" }

// Authenticate asks the API server about the token of the header, or of the cookie.
func (t *Token) Authenticate(r *http.Request) (*User, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if c, err := r.Cookie(TokenCookie); !ok && err == nil {
		token = c.Value
	}
	if token = strings.TrimSpace(token); token == "" {
		return nil, fmt.Errorf("%w: enter a token, such as kubectl create token prints", ErrNotSignedIn)
	}
	return t.Review(r.Context(), token)
}

// Review returns the user of a token. The answer of the API server counts for 30 s.
func (t *Token) Review(ctx context.Context, token string) (*User, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("%w: the token has more than %d characters", ErrNotSignedIn, maxToken)
	}
	sum := sha256.Sum256([]byte(token))
	key := string(sum[:])
	if u, ok := t.known.get(key); ok {
		if u == nil {
			return nil, fmt.Errorf("%w: the cluster refuses the token; it may have expired", ErrNotSignedIn)
		}
		return u, nil
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := t.client.Create(ctx, review); err != nil {
		return nil, fmt.Errorf("asking the cluster about the token: %w", err)
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		t.known.put(key, nil)
		return nil, fmt.Errorf("%w: the cluster refuses the token; it may have expired", ErrNotSignedIn)
	}
	by := review.Status.User
	u := &User{Name: by.Username, UID: by.UID, Groups: by.Groups, Extra: by.Extra}
	t.known.put(key, u)
	return u, nil
}

// SignIn keeps a token that the API server takes in a cookie.
func (t *Token) SignIn(w http.ResponseWriter, r *http.Request, token string) (*User, error) {
	u, err := t.Review(r.Context(), token)
	if err == nil {
		setCookie(w, TokenCookie, token)
	}
	return u, err
}

// SignOut deletes that cookie.
func SignOut(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: TokenCookie, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
}

// Proxy lets those read whom a proxy names in headers. Headers of other peers count for
// nothing.
type Proxy struct {
	// Trusted are the addresses of the proxy.
	Trusted []netip.Prefix
	// UserHeader and GroupsHeader are the names of the headers. Groups are separated by
	// commas, and the header may come more than once.
	UserHeader, GroupsHeader string
}

// Mode is "proxy".
func (p *Proxy) Mode() string { return "proxy" }

// reserved is the beginning of names that only the API server gives.
const reserved = "system:"

// Authenticate reads the headers of a trusted peer.
func (p *Proxy) Authenticate(r *http.Request) (*User, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of the peer is not known", ErrNotSignedIn)
	}
	peer, err := netip.ParseAddr(host)
	if err != nil || !slices.ContainsFunc(p.Trusted, func(t netip.Prefix) bool { return t.Contains(peer.Unmap().WithZone("")) }) {
		return nil, fmt.Errorf("%w: %s is not one of --trusted-proxies", ErrNotSignedIn, host)
	}
	names := r.Header.Values(p.UserHeader)
	if len(names) != 1 || names[0] == "" {
		return nil, fmt.Errorf("%w: the proxy names no user in %s", ErrNotSignedIn, p.UserHeader)
	}
	if strings.HasPrefix(names[0], reserved) {
		return nil, fmt.Errorf("%w: the proxy names %q, which is a name of the cluster itself", ErrNotSignedIn, names[0])
	}
	u := &User{Name: names[0], Groups: []string{"system:authenticated"}}
	for _, value := range r.Header.Values(p.GroupsHeader) {
		for group := range strings.SplitSeq(value, ",") {
			if group = strings.TrimSpace(group); group != "" && !strings.HasPrefix(group, reserved) {
				u.Groups = append(u.Groups, group)
			}
		}
	}
	return u, nil
}
