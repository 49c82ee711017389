package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// token is what a Secret has, or why it has nothing.
type token struct {
	value []byte
	err   error
}

// tokenCache has the tokens that were read of late, by their Secret. A Secret is read again once the
// watch on the metadata of Secrets has another version of it. So a hook costs no request
// where nothing has changed. A token that was taken back counts until the watch has it. It
// can ask for no more than a sync.
type tokenCache map[types.NamespacedName]keptToken

// mostTokens bounds what is kept.
const mostTokens = 10000

type keptToken struct {
	version string // resourceVersion of the Secret
	value   []byte
}

// of returns the token that sources share with their forge.
func (ts tokenCache) of(ctx context.Context, watched, own client.Reader, key types.NamespacedName) ([]byte, error) {
	meta := metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if kept, ok := ts[key]; ok && watched.Get(ctx, key, &meta) == nil && meta.ResourceVersion == kept.version {
		return kept.value, nil
	}
	delete(ts, key)
	var secret corev1.Secret
	if err := own.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("getting Secret %s of spec.webhook: %w", key, err)
	}
	value := secret.Data[keyToken]
	if len(value) == 0 {
		return nil, fmt.Errorf("Secret %s of spec.webhook has no entry %q", key, keyToken)
	}
	if len(ts) >= mostTokens {
		clear(ts)
	}
	ts[key] = keptToken{version: secret.ResourceVersion, value: value}
	return value, nil
}
