// Package gitserver serves the bare repositories of a directory over smart HTTP, by way of git's own http-backend.
package gitserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// stopGrace is how long a fetch or push under way may take when the server is stopped.
const stopGrace = 5 * time.Second

// Options say what to serve, where, and to whom.
type Options struct {
	Dir                string // holds the bare repositories, at any depth
	Addr               string // to listen on; port 0 is any free one
	Username, Password string // asked for unless both are empty
}

// Serve serves until the context is cancelled, and then returns nil. It calls listening once, with the URL.
func Serve(ctx context.Context, o Options, listening func(url string)) error {
	h, err := NewHandler(o)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", o.Addr, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	listening("http://" + l.Addr().String())

	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := server.Shutdown(stopCtx); err != nil {
		return errors.Join(fmt.Errorf("stopping: %w", err), server.Close())
	}
	return nil
}

// Handler serves repositories.
type Handler struct {
	options Options
	root    *os.Root // the directory; nothing outside of it can be reached through it
	backend *cgi.Handler
}

// NewHandler serves the repositories of a directory. Close it when done.
func NewHandler(o Options) (*Handler, error) {
	if (o.Username == "") != (o.Password == "") {
		return nil, errors.New("user name and password: give both or none")
	}
	dir, err := resolve(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", o.Dir, err)
	}
	backend, err := findBackend()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, err)
	}
	return &Handler{
		options: o,
		root:    root,
		backend: &cgi.Handler{
			Path: backend,
			Dir:  dir,
			Env: []string{
				"GIT_PROJECT_ROOT=" + dir,
				"GIT_HTTP_EXPORT_ALL=1",
				"GIT_CONFIG_COUNT=1",
				"GIT_CONFIG_KEY_0=http.receivepack",
				"GIT_CONFIG_VALUE_0=true",
			},
			// For hooks, and for the tests' own configuration of git.
			InheritEnv: []string{"HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "TMPDIR"},
			Logger:     log.New(os.Stderr, "git: ", 0),
		},
	}, nil
}

// Close frees the directory.
func (h *Handler) Close() error { return h.root.Close() }

// resolve is the absolute path of a directory, free of symbolic links: git compares paths as text.
func resolve(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	return filepath.Abs(dir)
}

func findBackend() (string, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return "", fmt.Errorf("asking git for its programs: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("looking for git's HTTP server: %w", err)
	}
	return path, nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.authorized(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="devcluster git"`)
		http.Error(w, "user name and password wanted", http.StatusUnauthorized)
		return
	}
	if !h.serves(r.URL.Path) {
		http.NotFound(w, r)
		return
	}
	// The cgi package refuses bodies of unknown length, as large pushes have them; http-backend reads them to their end.
	r.TransferEncoding = nil
	h.backend.ServeHTTP(w, r)
}

// authorized compares hashes, which takes as long for a near miss as for a wide one.
func (h *Handler) authorized(r *http.Request) bool {
	if h.options.Username == "" {
		return true
	}
	username, password, _ := r.BasicAuth()
	return equal(username, h.options.Username)&equal(password, h.options.Password) == 1
}

func equal(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

// serves reports whether a URL path is an endpoint of a bare repository in the directory. The root refuses what
// leaves it, by ".." or by a symbolic link, and so nothing else reaches git.
func (h *Handler) serves(path string) bool {
	for _, endpoint := range []string{"/info/refs", "/git-upload-pack", "/git-receive-pack"} {
		repository, ok := strings.CutSuffix(path, endpoint)
		if !ok {
			continue
		}
		info, err := h.root.Stat(strings.TrimPrefix(repository, "/") + "/HEAD")
		return err == nil && info.Mode().IsRegular()
	}
	return false
}
