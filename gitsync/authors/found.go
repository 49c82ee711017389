package authors

import "github.com/go-git/go-git/v5/plumbing"

// Found are the commits that made a difference, or why they cannot be found.
type Found struct {
	commits []plumbing.Hash
	// takenBack are those of them that need no author, see takenback.go.
	takenBack map[plumbing.Hash]bool
	err       error // see IsUncounted
	// unknown is why more commits may be among them than have made the difference.
	unknown error
}

// ifUnknown adds to why an approval does not count that it may count later.
func (f Found) ifUnknown(fact, hint string) (string, string) {
	if f.unknown == nil {
		return fact, hint
	}
	return fact + "; whether that commit has a part in the change is not known, since " + f.unknown.Error(), HintUnknown
}

// Known are the commits that made a release or a plan what it is, from earlier syncs.
type Known map[string]Found

// search returns a change that is known, or finds it. A search that takes too much is
// not repeated at each sync.
func (k Known) search(known string, find func() Found) Found {
	if found, ok := k[known]; ok {
		return found
	}
	found := find()
	if k != nil && (found.err == nil && found.unknown == nil || IsUncounted(found.err)) {
		k[known] = found
	}
	return found
}

// KeptChanges bounds what is kept of releases; it costs little to find again.
const KeptChanges = 100

// HintUnknown is what to do if it is not known what a commit renders.
const HintUnknown = "it is tried again at each sync; if the remote base is gone for good, let another person approve, " +
	"or revert the change and bring it by a new commit"
