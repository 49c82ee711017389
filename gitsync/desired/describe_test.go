package desired

import (
	"testing"

	"github.com/go-git/go-git/v5/plumbing/object"
)

// The pages on which forges show a commit.
func TestCommitPage(t *testing.T) {
	for repository, want := range map[string]string{
		"https://github.com/shop/web.git":           "https://github.com/shop/web/commit/abc",
		"https://git.example.org:8443/shop/web":     "https://git.example.org:8443/shop/web/commit/abc",
		"ssh://git@gitlab.example.org:2222/a/b.git": "https://gitlab.example.org/a/b/-/commit/abc",
		"https://bitbucket.org/shop/web.git/":       "https://bitbucket.org/shop/web/commits/abc",
		"file:///srv/web.git":                       "",
	} {
		if got := CommitPage(repository, "abc"); got != want {
			t.Errorf("%s: %q, want %q", repository, got, want)
		}
	}
	if got := CommitPage("https://github.com/shop/web", ""); got != "" {
		t.Errorf("without a commit: %q", got)
	}
}

// The rejection in a commit's message, and the release that it is of.
func TestRejectedBy(t *testing.T) {
	const trailers = "Tranche-Release: shop/web\nTranche-Revision: a\nTranche-Commit: abc\n"
	for _, tc := range []struct{ why, message, want string }{
		{"of the release", "Reject x\n\nRejected: slow\n\n" + trailers + "Tranche-Rejected: slow\n", "slow"},
		{"a rollback", "Revert x\n\n" + trailers, ""},
		{"of another release", "Reject x\n\nTranche-Release: shop/api\nTranche-Commit: abc\nTranche-Rejected: slow\n", ""},
		{"not a trailer", "Reject x\n\nTranche-Rejected: slow\n\n" + trailers, ""},
	} {
		got := rejectedBy(&object.Commit{Message: tc.message}, "shop/web")
		if got.reason != tc.want || tc.want != "" && got.Of != "abc" {
			t.Errorf("%s: %+v, want %q", tc.why, got, tc.want)
		}
	}
}
