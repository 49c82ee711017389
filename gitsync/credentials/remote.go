package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Reader reads the Secrets that a GitSource names, with the rights of a client.
type Reader struct {
	Client client.Reader
	Source *v1alpha1.GitSource
}

// SecretName is namespace and name of a GitSource's Secret; empty: none.
func SecretName(gs *v1alpha1.GitSource) string {
	if gs.Spec.SecretRef == nil {
		return ""
	}
	return gs.Namespace + "/" + gs.Spec.SecretRef.Name
}

// ProxyName is namespace and name of the Secret with a GitSource's proxy; empty: none.
func ProxyName(gs *v1alpha1.GitSource) string {
	if gs.Spec.ProxySecretRef == nil {
		return ""
	}
	return gs.Namespace + "/" + gs.Spec.ProxySecretRef.Name
}

// Access is how this controller comes to repositories.
type Access struct {
	// Apps are the GitHub Apps, with the tokens that they have got.
	Apps *gitserver.GitHubApps
	// FileRoots are the folders below which a file URL is read; FileWriteRoots those below
	// which it is pushed to.
	FileRoots, FileWriteRoots []string
	// MayPush returns why nothing may be pushed now; nil: it always may.
	MayPush func() error
}

// Remote reads the URL and the Secrets. Each sync reads them, so a new password needs
// no restart.
func (r Reader) Remote(ctx context.Context, a Access) (gitserver.Remote, error) {
	u, err := gitserver.ParseURL(r.Source.Spec.URL)
	if err != nil {
		return gitserver.Remote{}, err
	}
	if u, err = a.repositoryURL(u, r.Source.Spec.WriteBack); err != nil {
		return gitserver.Remote{}, err
	}
	remote := gitserver.Remote{URL: u, Secret: SecretName(r.Source), Proxy: ProxyName(r.Source), MayPush: a.MayPush}
	data, err := r.data(ctx, "spec.secretRef", r.Source.Spec.SecretRef)
	if err != nil {
		return remote, err
	}
	if remote.Access, err = gitserver.NewAccess(u, remote.Secret, data, r.Source.Spec.TimeoutOrDefault()); err != nil {
		return remote, err
	}
	if ref := r.Source.Spec.ProxySecretRef; ref != nil {
		if err := gitserver.MayProxy(u); err != nil {
			return remote, err
		}
		if data, err = r.data(ctx, "spec.proxySecretRef", ref); err != nil {
			return remote, err
		}
		if remote.Access, err = remote.Access.Through(remote.Proxy, data); err != nil {
			return remote, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.Source.Spec.TimeoutOrDefault())
	defer cancel()
	err = a.Apps.Authenticate(ctx, &remote)
	return remote, err
}

// repositoryURL returns where the repository of a GitSource's URL is read, and pushed to
// where the GitSource asks for that. It refuses file URLs that the flags do not allow.
func (a *Access) repositoryURL(u *url.URL, w *v1alpha1.WriteBack) (*url.URL, error) {
	u, err := gitserver.MayRead(a.FileRoots, u)
	if err != nil || w == nil || gitserver.MayWrite(a.FileWriteRoots, u) {
		return u, err
	}
	field := "spec.writeBack.enabled"
	switch {
	case w.Enabled:
	case w.Notes:
		field = "spec.writeBack.notes"
	default:
		return u, nil
	}
	return nil, &plan.Problem{
		Reason: v1alpha1.ReasonNotSupported, Where: field,
		Err:  errors.New("the controller pushes to no repository in the folder of this file URL"),
		Hint: "remove the field, use https or ssh, or start the controller with --file-write-roots",
	}
}

// data returns the data of a Secret that a field of the spec names; nil where the field
// is not set.
func (r Reader) data(ctx context.Context, field string, ref *v1alpha1.LocalObjectReference) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	name := client.ObjectKey{Namespace: r.Source.Namespace, Name: ref.Name}
	var secret corev1.Secret
	err := r.Client.Get(ctx, name, &secret)
	if apierrors.IsNotFound(err) {
		return nil, &plan.Problem{Reason: v1alpha1.ReasonSecretNotFound, Where: field, Err: fmt.Errorf("there is no Secret %s", name),
			Hint: "create it, or correct the name"}
	}
	if err != nil {
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	return secret.Data, nil
}
