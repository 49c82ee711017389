package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// signatures reads the keys. As with the credentials, each sync reads them. So a key
// that is taken from a Secret counts for nothing from the next sync on.
func (l *look) signatures(ctx context.Context) (s signers.Policy, err error) {
	if l.keep.changes == nil || len(l.keep.changes) > authors.KeptChanges {
		l.keep.changes = authors.Known{}
	}
	if l.keep.places == nil || len(l.keep.places) > signers.KeptPlaces {
		l.keep.places = map[string][]signers.Place{}
	}
	if l.keep.order == nil {
		l.keep.order = gitobject.Precedence{}
	}
	s.Now, s.Places, s.Order, s.Seen = time.Now(), l.keep.places, l.keep.order, l.gs.Status.Seen
	if v := l.gs.Spec.Verify; v != nil {
		if s.Verify, err = l.keys(ctx, "spec.verify", &v.Verification); err != nil {
			return s, err
		}
	}
	if a := l.gs.Spec.Approvals; a != nil {
		s.DistinctAuthor = a.DistinctAuthor
		if s.Signers, err = l.keys(ctx, "spec.approvals.signers", a.Signers); err == nil {
			s.Own, err = l.ownKey(ctx, s.Signers, s.Now)
		}
	}
	return s, err
}

// ownKey returns which of the signers is the controller: the key of spec.writeBack. For
// spec.verify, that key may stand in the same list as those of persons. Another source
// may have it for its write-back, and be one where an approval in the cluster is enough.
func (l *look) ownKey(ctx context.Context, signers *signature.Keys, now time.Time) (string, error) {
	w := l.gs.Spec.WriteBack
	if signers == nil || w == nil || w.SigningKey == nil {
		return "", nil
	}
	name := client.ObjectKey{Namespace: l.gs.Namespace, Name: w.SigningKey.Name}
	var secret corev1.Secret
	if err := l.own.Get(ctx, name, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil // a write-back says so
		}
		return "", fmt.Errorf("getting Secret %s: %w", name, err)
	}
	signer, err := signature.NewSigner(secret.Data)
	if err != nil {
		return "", nil //nolint:nilerr // a write-back says so
	}
	by, err := tryToSign(signer, signers, now)
	if err != nil {
		return "", nil //nolint:nilerr // the key is none of the signers'
	}
	return by.Key, nil
}

// tryToSign returns which of the keys a signer signs with.
func tryToSign(signer signature.Signer, keys *signature.Keys, now time.Time) (signature.Signature, error) {
	head := fmt.Sprintf("tree %s\nauthor t <> %[2]d +0000\ncommitter t <> %[2]d +0000\n", plumbing.ZeroHash, now.Unix())
	armored, err := signer.Sign([]byte(head + "\n"))
	if err != nil {
		return signature.Signature{}, err
	}
	try := head + "gpgsig " + strings.ReplaceAll(strings.TrimSuffix(armored, "\n"), "\n", "\n ") + "\n\n"
	return signature.Verify([]byte(try), keys, now, nil)
}

func (l *look) keys(ctx context.Context, field string, v *v1alpha1.Verification) (*signature.Keys, error) {
	if v == nil {
		return nil, nil
	}
	data, err := l.secret(ctx, field+".secretRef", &v.SecretRef)
	if err != nil {
		return nil, err
	}
	keys, err := signature.ParseKeys(data)
	if err != nil {
		return nil, &plan.Problem{Reason: v1alpha1.ReasonInvalidSecret, Where: "Secret " + l.gs.Namespace + "/" + v.SecretRef.Name, Err: errors.New(plan.OneLine(err.Error()))}
	}
	return keys, nil
}

// verified checks that what leads to a snapshot is signed, where the spec demands it. For
// a branch the tip is enough: its signature covers the whole tree, and the whole history.
func (l *look) verified(ctx context.Context, s *repository.Snapshot, by signers.Policy) error {
	if by.Verify == nil {
		return nil
	}
	secret := "a key in Secret " + l.gs.Namespace + "/" + l.gs.Spec.Verify.SecretRef.Name
	mode := cmp.Or(l.gs.Spec.Verify.Mode, v1alpha1.VerifyHEAD)
	if mode != v1alpha1.VerifyHEAD {
		why, err := by.TagUnsigned(s)
		if err != nil {
			return err
		}
		if why != "" {
			return &plan.Problem{
				Reason: v1alpha1.ReasonTagNotVerified, Where: desired.CommitAt(l.refName(s), s.Commit.String()), Err: errors.New(why),
				Hint: "make a tag that is signed by " + secret + " (git tag -s), or list the key there; what was applied stays",
			}
		}
	}
	if mode == v1alpha1.VerifyTag {
		return nil
	}
	for _, c := range slices.Compact([]plumbing.Hash{s.Commit, s.Tip}) {
		name := l.refName(s)
		if c != s.Commit {
			name = l.gs.Spec.Ref.Branch
		}
		_, why, err := by.SignerOf(ctx, s, c, by.Verify)
		if err != nil {
			return err
		}
		if why != "" {
			return &plan.Problem{
				Reason: v1alpha1.ReasonCommitNotVerified, Where: desired.CommitAt(name, c.String()), Err: errors.New(why),
				Hint: "push a commit on top that is signed by " + secret + " (git commit -S), or list the key there; what was applied stays",
			}
		}
	}
	return nil
}

// listed checks that spec.verify lists the key that signs what is written back.
// Otherwise the first commit of the controller would be the last one followed.
func (l *look) listed(ctx context.Context, signer signature.Signer) error {
	if l.gs.Spec.Verify == nil {
		return nil
	}
	keys, err := l.keys(ctx, "spec.verify", &l.gs.Spec.Verify.Verification)
	if err != nil {
		return err
	}
	if _, err := tryToSign(signer, keys, time.Now()); err != nil {
		return &plan.Problem{
			Reason: v1alpha1.ReasonWriteBackConflict, Where: "spec.writeBack.signingKey", Err: errors.New("spec.verify would not let a commit signed with it be applied: " + plan.OneLine(err.Error())),
			Hint: "list its public key in Secret " + l.gs.Namespace + "/" + l.gs.Spec.Verify.SecretRef.Name,
		}
	}
	return nil
}

// refName is what was followed to a snapshot, for messages.
func (l *look) refName(s *repository.Snapshot) string {
	if s.Tag.Name != "" {
		return s.Tag.Name
	}
	return l.gs.Spec.Ref.String()
}
