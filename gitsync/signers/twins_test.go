package signers

import (
	"io"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/memory"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A commit whose signature is written in another way has another name, and the same
// content. It is in the history in which the first one is. Any user who may push can
// make it.
func TestIsInHistory_Twins(t *testing.T) {
	store := memory.NewStorage()
	commit := func(parent plumbing.Hash, message, signature string) plumbing.Hash {
		t.Helper()
		o := store.NewEncodedObject()
		o.SetType(plumbing.CommitObject)
		w, err := o.Writer()
		if err != nil {
			t.Fatal(err)
		}
		text := "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
		if !parent.IsZero() {
			text += "parent " + parent.String() + "\n"
		}
		text += "author Ada <ada@example.org> 1700000000 +0000\ncommitter Ada <ada@example.org> 1700000000 +0000\n"
		if signature != "" {
			text += "gpgsig -----BEGIN SSH SIGNATURE-----\n" + signature + " -----END SSH SIGNATURE-----\n"
		}
		if _, err := io.WriteString(w, text+"\n"+message+"\n"); err != nil {
			t.Fatal(err)
		}
		h, err := store.SetEncodedObject(o)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	root := commit(plumbing.ZeroHash, "root", "")
	one, twin := commit(root, "approve", " U1NIU0lHAAAAAQ==\n"), commit(root, "approve", " U1NIU0lH\n AAAAAQ==\n")
	other := commit(root, "approve another", " U1NIU0lHAAAAAQ==\n")
	tip := commit(commit(one, "next", ""), "tip", "")
	for _, tc := range []struct {
		why  string
		is   plumbing.Hash
		want bool
	}{{"itself", one, true}, {"its twin", twin, true}, {"another one", other, false}, {"the twin's child", commit(twin, "next", ""), false}} {
		if got, err := gitobject.IsInHistory(t.Context(), store, tc.is, tip); got != tc.want || err != nil {
			t.Errorf("%s: %t, %v, want %t", tc.why, got, err, tc.want)
		}
	}
	// A commit that was seen without a signature, or with another one, was not seen with
	// this one, whatever was asked of it before.
	now := time.Now()
	unsigned := commit(root, "no signature", "")
	added := commit(root, "no signature", " U1NIU0lHAAAAAQ==\n")
	seenTip := commit(commit(unsigned, "next", ""), "another tip", "")
	sigs := Policy{Order: gitobject.Precedence{}, Seen: []v1alpha1.SeenCommit{{Commit: seenTip.String(), Time: metav1.NewTime(now.Add(-time.Hour))}, {Commit: tip.String(), Time: metav1.NewTime(now.Add(-2 * time.Hour))}}}
	for _, tc := range []struct {
		why  string
		is   plumbing.Hash
		want bool
	}{{"itself", one, true}, {"its twin", twin, false}, {"without a signature", unsigned, true}, {"with one that was added", added, false}} {
		for range 2 {
			if used, err := sigs.Order.Precedes(t.Context(), store, tc.is, tip); used != (tc.is == one || tc.is == twin) || err != nil {
				t.Errorf("%s: used %t, %v", tc.why, used, err)
			}
			if got, err := sigs.sawBy(t.Context(), store, tc.is, now); got != tc.want || err != nil {
				t.Errorf("%s: seen %t, %v, want %t", tc.why, got, err, tc.want)
			}
		}
	}
}
