package desired

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const baseOfTest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {value: %s}\n"

// renderWithBases renders a kustomization of a repository in this process.
func renderWithBases(t *testing.T, bs *repository.Bases, kustomization string, within time.Duration) ([]string, error) {
	t.Helper()
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(map[string]string{"kustomization.yaml": kustomization})
	u, err := gitserver.ParseURL(repo.URL())
	if err != nil {
		t.Fatal(err)
	}
	s, err := repository.NewCache(t.TempDir()).Of(gitserver.Remote{URL: u}).Fetch(t.Context(), gitserver.Remote{URL: u}, "main")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tree, err := gittree.Open(s, s.Commit)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reader{Source: &v1alpha1.GitSource{}, Bases: bs.Within(t.Context(), &within, time.Now())}
	objects, err := r.objects(tree, manifest.RenderOptions{})
	var names []string
	for _, o := range objects {
		value, _, _ := unstructured.NestedString(o.Object, "data", "value")
		names = append(names, o.GetName()+"="+value)
	}
	return names, err
}

// A base is fetched at a branch, a tag, a commit and HEAD, from a real Git server, with
// the bases that it names itself. The server is asked once for one look, and nothing is
// brought again that is there.
func TestBases(t *testing.T) {
	inner, base := gittest.NewRepoAt(t, filepath.Join(t.TempDir(), "inner.git")), gittest.NewRepo(t)
	innerServer := gittest.Serve(t, filepath.Dir(inner.Bare), gittest.ServeOptions{})
	inner.CommitAndPush(map[string]string{"k/kustomization.yaml": "resources: [a.yaml]\n", "k/a.yaml": fmt.Sprintf(baseOfTest, "inner")})
	var packs, asked atomic.Int32
	server := gittest.Serve(t, filepath.Dir(base.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Errorf("credentials came with %s", r.URL)
			}
			if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				packs.Add(1)
			} else {
				asked.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	}})
	url := server.URL + "/repo.git//base"
	first := base.CommitAndPush(map[string]string{"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": fmt.Sprintf(baseOfTest, "one")})
	base.Git("tag", "-a", "-m", "first", "v1")
	base.Git("push", "-q", "origin", "v1")
	base.CommitAndPush(map[string]string{"base/a.yaml": fmt.Sprintf(baseOfTest, "two")})
	base.Git("checkout", "-q", "-b", "nested")
	base.CommitAndPush(map[string]string{"base/kustomization.yaml": "nameSuffix: -nested\nresources: ['" + innerServer.URL + "/inner.git//k']\n"})

	bs := repository.NewBases(t.TempDir(), gittree.Limits{})
	for ref, want := range map[string]string{"": "a=two", "?ref=main": "a=two", "?ref=v1": "a=one", "?ref=" + first: "a=one", "?ref=nested": "a-nested=inner"} {
		got, err := renderWithBases(t, bs, "resources: ['"+url+ref+"']\n", time.Minute)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %v, want %s", ref, got, err, want)
		}
	}
	before, beforeAsked := packs.Load(), asked.Load()
	got, err := renderWithBases(t, bs, "resources: ['"+url+"', '"+server.URL+"/repo.git//base2', '"+server.URL+"/repo.git//base3']\n", time.Minute)
	if err == nil || !strings.Contains(err.Error(), "base2") {
		t.Errorf("folders that are not there: %v, %v", got, err)
	}
	if n, m := packs.Load()-before, asked.Load()-beforeAsked; n != 0 || m != 1 {
		t.Errorf("%d packs and %d questions for three folders of a base that is there", n, m)
	}
	base.Git("checkout", "-q", "main")
	base.CommitAndPush(map[string]string{"base/a.yaml": fmt.Sprintf(baseOfTest, "three")})
	if got, err := renderWithBases(t, bs, "resources: ['"+url+"']\n", time.Minute); err != nil || strings.Join(got, " ") != "a=three" {
		t.Errorf("after a push: %v, %v", got, err)
	}
}

// within is how long a base may take that is refused for a reason. It is short only if the
// reason is the time.
func within(reason string) time.Duration {
	if reason == "no answer in time" {
		return 5 * time.Second
	}
	return 4 * time.Minute
}

// gitsync refuses in a bounded time the bases that a kustomization may not have
// fetched, and names their URL. No request comes to a host that the kustomization does
// not name.
func TestBases_Attacks(t *testing.T) {
	var secrets atomic.Int32
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { secrets.Add(1) }))
	t.Cleanup(secret.Close)
	line := func(w http.ResponseWriter, text string) { _, _ = fmt.Fprintf(w, "%04x%s", len(text)+4, text) }
	hash := strings.Repeat("1", 40)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		switch {
		case strings.HasPrefix(r.URL.Path, "/redirect"):
			http.Redirect(w, r, secret.URL+r.URL.Path+"?"+r.URL.RawQuery, http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/silent"):
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/endless-list"):
			line(w, "# service=git-upload-pack\n")
			_, _ = w.Write([]byte("0000"))
			line(w, hash+" HEAD\x00side-band-64k ofs-delta shallow agent=evil\n")
			for name := strings.Repeat("x", 60_000); r.Context().Err() == nil; {
				line(w, hash+" refs/heads/"+name+"\n")
			}
		case strings.HasPrefix(r.URL.Path, "/endless-error") && strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
			w.WriteHeader(http.StatusInternalServerError)
			for chunk := strings.Repeat("x", 60_000); r.Context().Err() == nil; {
				_, _ = w.Write([]byte(chunk))
			}
		case strings.HasPrefix(r.URL.Path, "/endless-shallow") && strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
			for r.Context().Err() == nil {
				line(w, "shallow "+hash+"\n")
			}
		case strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
			line(w, "shallow "+hash+"\n")
			_, _ = w.Write([]byte("0000"))
			line(w, "NAK\n")
			line(w, "\x01PACK\x00\x00\x00\x02\x00\x00\x00\x01\x31\x78\x01")                          // of a blob of one byte
			for chunk := strings.Repeat("\x00\x00\x00\xff\xff", 12_000); r.Context().Err() == nil; { // zlib's empty blocks
				line(w, "\x01"+chunk)
			}
		default:
			line(w, "# service=git-upload-pack\n")
			_, _ = w.Write([]byte("0000"))
			line(w, hash+" HEAD\x00side-band-64k ofs-delta shallow agent=evil\n")
			_, _ = w.Write([]byte("0000"))
		}
	}))
	t.Cleanup(evil.Close)
	var thousand strings.Builder
	thousand.WriteString("resources:\n")
	for n := range 1000 {
		fmt.Fprintf(&thousand, "- %s/silent/%d\n", secret.URL, n)
	}
	for name, tc := range map[string]struct{ kustomization, want string }{
		"a file":                {"resources: ['file:///etc']", "only https and http"},
		"a metadata address":    {"resources: ['http://169.254.169.254/latest/meta-data']", "no remote base is fetched from this address"},
		"another way to it":     {"resources: ['http://[::ffff:169.254.169.254]/latest/meta-data']", "no remote base is fetched from this address"},
		"all addresses":         {"resources: ['http://0.0.0.0:" + secret.URL[strings.LastIndex(secret.URL, ":")+1:] + "/org/repo']", "no remote base is fetched from this address"},
		"a redirect":            {"resources: ['" + evil.URL + "/redirect/repo']", "the server redirects to"},
		"no answer":             {"resources: ['" + evil.URL + "/silent/repo']", "no answer in time"},
		"a list without end":    {"resources: ['" + evil.URL + "/endless-list/repo']", "the list of its branches and tags has more than 16Mi"},
		"an error without end":  {"resources: ['" + evil.URL + "/endless-error/repo']", "status code: 500"},
		"an answer without end": {"resources: ['" + evil.URL + "/endless-shallow/repo']", "the answer before its pack has more than 1Mi"},
		"a pack without end":    {"resources: ['" + evil.URL + "/endless-pack/repo']", "the repository takes more than a remote base may"},
		"a thousand":            {thousand.String(), "1000 remote bases are named, and at most 32 are fetched"},
		"a file of a server":    {"configMapGenerator: [{name: x, files: ['" + secret.URL + "/secret']}]", "is outside the repository"},
		"a program's option":    {"resources: ['" + evil.URL + "/org/repo?ref=--upload-pack=x']", "has a ref that is not valid"},
		"a password":            {"resources: ['" + strings.Replace(secret.URL, "//", "//user:password@", 1) + "/org/repo']", "it has credentials in it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := renderWithBases(t, repository.NewBases(t.TempDir(), gittree.Limits{RepositorySize: 16 << 20}), tc.kustomization+"\n", within(tc.want))
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "password@") {
				t.Errorf("it says %v, want %q", err, tc.want)
			}
		})
	}
	if n := secrets.Load(); n > 0 {
		t.Errorf("%d requests have come to a host that is not to be reached", n)
	}
}

// A renderer that asks for what it has been given, or for what is no URL, does not keep
// the controller busy.
func TestBases_LyingRenderer(t *testing.T) {
	b := newBaseTrees(nil)
	known := manifest.RemoteBase{URL: "https://example.org/a"}
	b.at[known] = "/.tranche-base-0"
	if err := b.add([]manifest.RemoteBase{known}, nil); err == nil {
		t.Error("it goes on without end")
	}
	bs := repository.NewBases(t.TempDir(), gittree.Limits{})
	for _, url := range []string{"file:///etc", "ssh://git@example.org/x", "https://user:password@example.org/x", "ext::sh -c id"} {
		if _, err := bs.Fetch(t.Context(), manifest.RemoteBase{URL: url}, time.Now()); err == nil || !strings.Contains(err.Error(), "is not an https or http URL") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// The bases of one rendering take no more than one repository may, together.
func TestBases_Size(t *testing.T) {
	base := gittest.NewRepo(t)
	server := gittest.Serve(t, filepath.Dir(base.Bare), gittest.ServeOptions{})
	var kustomization strings.Builder
	kustomization.WriteString("resources:\n")
	for n := range 12 {
		name := fmt.Sprintf("b%d", n)
		files := map[string]string{"kustomization.yaml": "namePrefix: a-\n"}
		for i := range 5 {
			files[fmt.Sprintf("file-%d", i)] = fmt.Sprintf("%x", gittest.PseudoRandom(10*n+i, 30<<10))
		}
		base.Git("checkout", "-q", "--orphan", name)
		base.CommitAndPush(files)
		fmt.Fprintf(&kustomization, "- %s/repo.git?ref=%s\n", server.URL, name)
	}
	_, err := renderWithBases(t, repository.NewBases(t.TempDir(), gittree.Limits{RepositorySize: 2 << 20}), kustomization.String(), time.Minute)
	if err == nil || !strings.Contains(err.Error(), "the remote bases take more than one repository may") {
		t.Errorf("it says %v", err)
	}
}
