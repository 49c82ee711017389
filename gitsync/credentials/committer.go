package credentials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Committer reads how the commits are to look that are written back, and their key.
func (r Reader) Committer(ctx context.Context) (gitobject.Committer, error) {
	spec := r.Source.Spec.WriteBack
	m := Unsigned(spec)
	if spec.SigningKey == nil {
		if r.Source.Spec.Verify != nil {
			return m, &plan.Problem{Reason: v1alpha1.ReasonWriteBackConflict, Where: "spec.writeBack.signingKey",
				Err:  errors.New("is not set, and spec.verify lets no unsigned commit be applied"),
				Hint: "name a Secret with a key that spec.verify lists"}
		}
		return m, nil
	}
	name := r.Source.Namespace + "/" + spec.SigningKey.Name
	var secret corev1.Secret
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Source.Namespace, Name: spec.SigningKey.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return m, &plan.Problem{Reason: v1alpha1.ReasonSecretNotFound, Where: "spec.writeBack.signingKey",
			Err: fmt.Errorf("there is no Secret %s", name), Hint: "create it, or correct the name", Retry: true}
	}
	if err != nil {
		return m, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	m.Signer, err = signature.NewSigner(secret.Data)
	if err != nil {
		return m, &plan.Problem{Reason: v1alpha1.ReasonInvalidSecret, Where: "Secret " + name, Err: err, Retry: true}
	}
	return m, r.listed(ctx, m.Signer)
}

// Unsigned makes commits without a signature.
func Unsigned(spec *v1alpha1.WriteBack) gitobject.Committer {
	m := gitobject.Committer{Author: signatureOf(spec.Author)}
	m.Committer = m.Author
	if spec.Committer != nil {
		m.Committer = signatureOf(spec.Committer)
	}
	return m
}

// The author where the GitSource names none.
const (
	defaultAuthor = "tranche"
	defaultEmail  = "noreply@tranche.dev"
)

func signatureOf(s *v1alpha1.Signature) object.Signature {
	if s == nil {
		s = &v1alpha1.Signature{}
	}
	clean := strings.NewReplacer("<", "", ">", "", "\n", " ")
	return object.Signature{Name: clean.Replace(cmp.Or(s.Name, defaultAuthor)), Email: clean.Replace(cmp.Or(s.Email, defaultEmail))}
}
