package credentials

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

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Keys reads the keys that count into s. As with the credentials, each sync reads them. So
// a key that is taken from a Secret counts for nothing from the next sync on.
func (r Reader) Keys(ctx context.Context, s *signers.Policy) (err error) {
	if v := r.Source.Spec.Verify; v != nil {
		if s.Verify, err = r.keys(ctx, "spec.verify", &v.Verification); err != nil {
			return err
		}
	}
	if a := r.Source.Spec.Approvals; a != nil {
		s.DistinctAuthor = a.DistinctAuthor
		if s.Signers, err = r.keys(ctx, "spec.approvals.signers", a.Signers); err == nil {
			s.Own, err = r.ownKey(ctx, s.Signers, s.Now)
		}
	}
	return err
}

// ownKey returns which of the signers is the controller: the key of spec.writeBack. For
// spec.verify, that key may stand in the same list as those of persons. Another source
// may have it for its write-back, and be one where an approval in the cluster is enough.
func (r Reader) ownKey(ctx context.Context, signers *signature.Keys, now time.Time) (string, error) {
	w := r.Source.Spec.WriteBack
	if signers == nil || w == nil || w.SigningKey == nil {
		return "", nil
	}
	name := client.ObjectKey{Namespace: r.Source.Namespace, Name: w.SigningKey.Name}
	var secret corev1.Secret
	if err := r.Client.Get(ctx, name, &secret); err != nil {
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

func (r Reader) keys(ctx context.Context, field string, v *v1alpha1.Verification) (*signature.Keys, error) {
	if v == nil {
		return nil, nil
	}
	data, err := r.data(ctx, field+".secretRef", &v.SecretRef)
	if err != nil {
		return nil, err
	}
	keys, err := signature.ParseKeys(data)
	if err != nil {
		return nil, &plan.Problem{Reason: v1alpha1.ReasonInvalidSecret,
			Where: "Secret " + r.Source.Namespace + "/" + v.SecretRef.Name, Err: errors.New(plan.OneLine(err.Error()))}
	}
	return keys, nil
}

// listed checks that spec.verify lists the key that signs what is written back.
// Otherwise the first commit of the controller would be the last one followed.
func (r Reader) listed(ctx context.Context, signer signature.Signer) error {
	if r.Source.Spec.Verify == nil {
		return nil
	}
	keys, err := r.keys(ctx, "spec.verify", &r.Source.Spec.Verify.Verification)
	if err != nil {
		return err
	}
	if _, err := tryToSign(signer, keys, time.Now()); err != nil {
		return &plan.Problem{
			Reason: v1alpha1.ReasonWriteBackConflict, Where: "spec.writeBack.signingKey",
			Err:  errors.New("spec.verify would not let a commit signed with it be applied: " + plan.OneLine(err.Error())),
			Hint: "list its public key in Secret " + r.Source.Namespace + "/" + r.Source.Spec.Verify.SecretRef.Name,
		}
	}
	return nil
}

// Verify checks that what leads to a snapshot is signed, where the spec demands it. For
// a branch the tip is enough: its signature covers the whole tree, and the whole history.
func Verify(ctx context.Context, gs *v1alpha1.GitSource, s *repository.Snapshot, by signers.Policy) error {
	if by.Verify == nil {
		return nil
	}
	secret := "a key in Secret " + gs.Namespace + "/" + gs.Spec.Verify.SecretRef.Name
	mode := cmp.Or(gs.Spec.Verify.Mode, v1alpha1.VerifyHEAD)
	if mode != v1alpha1.VerifyHEAD {
		why, err := by.TagUnsigned(s)
		if err != nil {
			return err
		}
		if why != "" {
			return &plan.Problem{
				Reason: v1alpha1.ReasonTagNotVerified, Where: desired.CommitName(RefName(gs, s), s.Commit.String()), Err: errors.New(why),
				Hint: "make a tag that is signed by " + secret + " (git tag -s), or list the key there; what was applied stays",
			}
		}
	}
	if mode == v1alpha1.VerifyTag {
		return nil
	}
	for _, c := range slices.Compact([]plumbing.Hash{s.Commit, s.Tip}) {
		name := RefName(gs, s)
		if c != s.Commit {
			name = gs.Spec.Ref.Branch
		}
		_, why, err := by.SignerOf(ctx, s, c, by.Verify)
		if err != nil {
			return err
		}
		if why != "" {
			return &plan.Problem{
				Reason: v1alpha1.ReasonCommitNotVerified, Where: desired.CommitName(name, c.String()), Err: errors.New(why),
				Hint: "push a commit on top that is signed by " + secret + " (git commit -S), or list the key there; what was applied stays",
			}
		}
	}
	return nil
}

// RefName is what was followed to a snapshot, for messages.
func RefName(gs *v1alpha1.GitSource, s *repository.Snapshot) string {
	if s.Tag.Name != "" {
		return s.Tag.Name
	}
	return gs.Spec.Ref.String()
}
