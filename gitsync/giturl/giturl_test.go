package giturl

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSame(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"https://example.org/shop.git", "https://example.org/shop", true},
		{"https://example.org/shop.git", "https://EXAMPLE.org:443/shop/", true},
		{"https://example.org/shop.git", "ssh://git@example.org:2222/shop.git", true},
		{"https://example.org/shop.git", "https://example.org:8443/shop.git", false},
		{"https://example.org/shop.git", "https://example.org/shop2.git", false},
		{"https://example.org/shop.git", "https://example.com/shop.git", false},
		{"file:///srv/shop.git", "file:///srv//shop.git/", true},
		{"file:///srv/shop.git", "file:///srv/shop", false},
	} {
		if got := Same(tc.a, tc.b); got != tc.same {
			t.Errorf("%s and %s: %t", tc.a, tc.b, got)
		}
	}
}

func TestSameForUser(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"git@git.example.org:shop/web.git", "ssh://git@git.example.org/shop/web", true},
		{"git@git.example.org:shop/web.git", "https://git.example.org/shop/web.git", true},
		{"git.example.org:shop/web", "https://git.example.org/shop/web/", true},
		{"ssh://git@git.example.org:22/shop/web.git", "ssh://git.example.org/shop/web.git", true},
		{"https://ada:secret@Git.Example.org/shop/web", "https://git.example.org/shop/web", true},
		{"https://git.example.org/shop/web", "https://git.example.org/shop/api", false},
		{"https://git.example.org/shop/web", "https://git.example.com/shop/web", false},
		{"file://" + dir, link, true},
		{"file://" + dir, dir + "/", true},
		{dir, "https://git.example.org" + dir, false},
	} {
		if got := SameForUser(tc.a, tc.b); got != tc.want {
			t.Errorf("%s and %s: %t, want %t", tc.a, tc.b, got, tc.want)
		}
	}
}
