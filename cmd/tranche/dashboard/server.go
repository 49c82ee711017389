package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/web"
)

// Server serves the page and its data.
type Server struct {
	Feed   *feed.Cluster
	Auth   access.Authenticator
	Rights access.Rights
	// Hosts are the values of the header Host that are answered.
	Hosts []string
	Now   func() time.Time
	// Clone is where the person's commits are made; nil: nowhere.
	Clone *Clone
}

// policy lets the page run its own files alone, and lets no other page show it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// maxBody is the size of what the page sends.
const maxBody = 64 << 10

// Handler returns all of the server.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/me", s.me)
	mux.HandleFunc("POST /api/login", s.login)
	mux.HandleFunc("POST /api/logout", s.logout)
	mux.Handle("POST /api/act", s.authenticated(s.act))
	mux.Handle("GET /api/stream", s.authenticated(s.stream))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "there is no such address")
	})
	mux.Handle("GET /assets/", http.FileServerFS(web.Files()))
	mux.HandleFunc("/", s.page)
	return s.guarded(ofThisPage(http.MaxBytesHandler(mux, maxBody)))
}

// ofThisPage refuses what another page asks of the API. [http.CrossOriginProtection] lets it read,
// and the API tells what only a reader may know. So each request is checked as one that writes.
func ofThisPage(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := *r
		if strings.HasPrefix(r.URL.Path, "/api/") {
			asked.Method = http.MethodPost
		}
		if protection.Check(&asked) != nil {
			refuse(w, http.StatusForbidden, "the request comes from another page")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guarded answers requests for the hosts of the dashboard alone. A page of another name
// that leads to this address (DNS rebinding) is refused.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.URL.Path == "/healthz" { // kubelets ask by the address of the pod
			return
		}
		if !slices.Contains(s.Hosts, strings.ToLower(r.Host)) {
			refuse(w, http.StatusMisdirectedRequest, "the dashboard has another name; in a cluster, see --allowed-hosts")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// page serves the same file for all addresses of the page. It has no data.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "the page is only read")
		return
	}
	local, isLocal := s.Auth.(*access.Local)
	if token := r.URL.Query().Get("token"); isLocal && token != "" {
		if !local.SignIn(w, token) {
			refuse(w, http.StatusUnauthorized, "the token is wrong: open the URL that tranche dashboard printed")
			return
		}
		http.Redirect(w, r, "/", http.StatusSeeOther) // without the token
		return
	}
	if path.Ext(r.URL.Path) != "" && r.URL.Path != "/index.html" {
		if name := strings.TrimPrefix(r.URL.Path, "/"); name == "icon.svg" {
			http.ServeFileFS(w, r, web.Files(), name)
			return
		}
	}
	index, err := fs.ReadFile(web.Files(), "index.html")
	if err != nil {
		refuse(w, http.StatusInternalServerError, "the page is not part of this program")
		return
	}
	http.ServeContent(w, r, "index.html", time.Time{}, bytes.NewReader(index))
}

// authenticated lets a request of a known user through.
func (s *Server) authenticated(next func(http.ResponseWriter, *http.Request, *access.User)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := s.Auth.Authenticate(r)
		if err != nil {
			s.refuseUser(w, err)
			return
		}
		next(w, r, u)
	})
}

func (s *Server) refuseUser(w http.ResponseWriter, err error) {
	if errors.Is(err, access.ErrNotSignedIn) {
		refuse(w, http.StatusUnauthorized, err.Error())
		return
	}
	refuse(w, http.StatusBadGateway, err.Error())
}

// me says who the reader is. It is the one answer to a reader who is not known.
func (s *Server) me(w http.ResponseWriter, r *http.Request) {
	answer := map[string]any{"mode": s.Auth.Mode(), "version": cli.VersionString()}
	u, err := s.Auth.Authenticate(r)
	switch {
	case err == nil:
		answer["user"] = u.Name
	case errors.Is(err, access.ErrNotSignedIn):
		answer["error"] = err.Error()
	default: // the page asks again
		s.refuseUser(w, err)
		return
	}
	reply(w, answer)
}

// login keeps the bearer token of a reader in a cookie.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	t, ok := s.Auth.(*access.Token)
	if !ok {
		refuse(w, http.StatusNotFound, "there is no sign-in by token here")
		return
	}
	var body struct {
		Token string `json:"token"`
	}
	if !read(w, r, &body) {
		return
	}
	u, err := t.SignIn(w, r, strings.TrimSpace(body.Token))
	if err != nil {
		s.refuseUser(w, err)
		return
	}
	reply(w, map[string]any{"user": u.Name})
}

func (s *Server) logout(w http.ResponseWriter, _ *http.Request) {
	access.SignOut(w)
	reply(w, map[string]any{})
}

// read reads the body of a request, and reports whether it is good.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if r.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return false
	}
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not valid JSON")
		return false
	}
	return true
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the reader may have gone
}

func refuse(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why}) // the reader may have gone
}
