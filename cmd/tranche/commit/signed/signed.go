// Package signed tells the approvals that are signed as spec.approvals.signers demands from
// others, by the rule of the controller.
package signed

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Keys returns keys that a source lists, as far as the user of the client may read them.
func Keys(ctx context.Context, c client.Reader, gs *v1alpha1.GitSource, v *v1alpha1.Verification) (*signature.Keys, error) {
	name := client.ObjectKey{Namespace: gs.Namespace, Name: v.SecretRef.Name}
	var secret corev1.Secret
	if err := c.Get(ctx, name, &secret); err != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	keys, err := signature.ParseKeys(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return keys, nil
}

// Trusts reports whether the user's git trusts the signature of a commit.
func Trusts(ctx context.Context, in *clone.Clone, commit string) bool {
	good, err := in.Git(ctx, "--no-replace-objects", "log", "-1", "--no-show-signature", "--format=%G?", commit)
	return err == nil && good == "G"
}

// Approvals judges the approvals of a release. The controller ignores those that are not signed
// before it looks whether there is one too many.
type Approvals struct {
	Release *v1alpha1.BatchRelease
	Source  *v1alpha1.GitSource
	Clone   *clone.Clone
	Client  client.Reader
	// Say prints for the user.
	Say func(format string, args ...any)
	// Own is the change that the command makes. Its user signs it, now or before the push.
	Own *clone.Change

	// policy has no Signers if this user may not read them.
	policy *signers.Policy
}

// OwnPlace returns the file of a release's name that has an approval of the release, or that is
// not there yet. It is empty if other things are in all of them, such as links, and taken is
// the last one.
func OwnPlace(tree *gittree.Tree, dir string, br *v1alpha1.BatchRelease, approvals []plan.Approval) (place, taken string) {
	for _, name := range []string{br.Name, br.Namespace + "-" + br.Name} {
		taken = path.Join(dir, name+".yaml")
		has := slices.ContainsFunc(approvals, func(a plan.Approval) bool { return a.File == taken && !a.Linked })
		if has || !tree.Exists(taken) {
			return taken, ""
		}
	}
	return "", taken
}

// Place returns the file for an approval, which is the own place in most cases. It is another
// one if a signer has approved this release there. The same holds for an earlier release,
// while the own place is not in use. Place prints which other files are ignored.
func (s *Approvals) Place(ctx context.Context, head, own string, approvals []plan.Approval) (string, error) {
	if slices.ContainsFunc(approvals, func(a plan.Approval) bool { return a.File == own && !a.Alone }) {
		return "", fmt.Errorf("%s has other documents than the approval of %s/%s, and a signature would cover them, too; give each a "+
			"file of its own", own, s.Release.Namespace, s.Release.Name)
	}
	others := slices.DeleteFunc(slices.Clone(approvals), func(a plan.Approval) bool { return a.File == own })
	these, earlier := s.ofRelease(others)
	signed, ignored, err := s.split(ctx, head, these)
	if err != nil {
		return "", err
	}
	for _, p := range ignored {
		s.Say("Ignored: %s\n", p.Error())
	}
	if inUse := func(a plan.Approval) bool { return a.File == own }; len(signed) == 0 && !slices.ContainsFunc(approvals, inUse) {
		signed, _, err = s.split(ctx, head, earlier)
	}
	if err != nil || len(signed) == 0 {
		return own, err
	}
	return signed[0].File, nil
}

// Counted returns the approvals without those of the release that the controller ignores, and
// why it does.
func (s *Approvals) Counted(ctx context.Context, commit string, approvals []plan.Approval) ([]plan.Approval, plan.Problems, error) {
	these, others := s.ofRelease(approvals)
	signed, ignored, err := s.split(ctx, commit, these)
	return append(others, signed...), ignored, err
}

// ofRelease parts the approvals that are for the release under way from others.
func (s *Approvals) ofRelease(approvals []plan.Approval) (these, others []plan.Approval) {
	for _, a := range approvals {
		if a.Metadata.Namespace == s.Release.Namespace && a.Metadata.Name == s.Release.Name && a.IsFor(s.Release.Spec.Commit) {
			these = append(these, a)
		} else {
			others = append(others, a)
		}
	}
	return these, others
}

// split returns the approvals that are signed at a commit, and why the others are ignored.
func (s *Approvals) split(ctx context.Context, commit string, approvals []plan.Approval) (
	signed []plan.Approval, ignored plan.Problems, err error,
) {
	objects, err := s.Clone.Objects()
	if err != nil {
		return nil, nil, err
	}
	for i := range approvals {
		p, err := s.ignores(ctx, objects, commit, &approvals[i])
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("finding out who signed %s: %w; git fetch --unshallow if the clone is shallow", approvals[i].File, err)
		case p != nil:
			ignored = append(ignored, p)
		default:
			signed = append(signed, approvals[i])
		}
	}
	return signed, ignored, nil
}

// ignores says why an approval is not signed; nil: it is, or is going to be.
func (s *Approvals) ignores(ctx context.Context, objects storer.EncodedObjectStorer, commit string, a *plan.Approval) (
	*plan.Problem, error,
) {
	if p := a.NotAsSigned(); p != nil {
		return p, nil
	}
	at, err := signers.LastChange(objects, plumbing.NewHash(commit), a.File, signers.FileOrigin{})
	if err != nil || s.Own.Made(at.In) {
		return nil, err
	}
	s.read(ctx)
	if s.policy.Signers != nil {
		_, p, err := s.policy.SignerOfApproval(ctx, objects, a, at)
		return p, err
	}
	taken := s.Release.Spec.Approval
	if taken != nil && taken.ApprovedIn == at.In || Trusts(ctx, s.Clone, at.In) {
		return nil, nil
	}
	return a.Ignored("spec", "your git does not trust the signature of commit "+plan.ShortCommit(at.In)+", which brought it", ""), nil
}

// read reads the signers, once. Without the right to, a user has git check the signatures, and
// the controller has taken an approval that the BatchRelease has.
func (s *Approvals) read(ctx context.Context) {
	if s.policy != nil {
		return
	}
	s.policy = &signers.Policy{
		Now: time.Now(), Seen: s.Source.Status.Seen, Order: gitobject.Precedence{}, Places: map[string][]signers.Place{},
	}
	var err error
	if s.policy.Signers, err = Keys(ctx, s.Client, s.Source, s.Source.Spec.Approvals.Signers); err != nil {
		s.Say("Not checked with the keys of spec.approvals.signers: %s. Approvals count as signed if your git trusts their signatures.\n",
			plan.OneLine(err.Error()))
	}
}
