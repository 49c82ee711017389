package webhook

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
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
type tokenCache struct {
	mu sync.Mutex
	by map[types.NamespacedName]keptToken
}

// mostTokens bounds what is kept.
const mostTokens = 10000

type keptToken struct {
	version string // resourceVersion of the Secret
	value   []byte
}

// of returns the token that sources share with their forge.
func (ts *tokenCache) of(ctx context.Context, watched, own client.Reader, key types.NamespacedName) ([]byte, error) {
	meta := metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if kept, ok := ts.load(key); ok && watched.Get(ctx, key, &meta) == nil && meta.ResourceVersion == kept.version {
		return kept.value, nil
	}
	ts.drop(key)
	var secret corev1.Secret
	if err := own.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("getting Secret %s of spec.webhook: %w", key, err)
	}
	value := secret.Data[keyToken]
	if len(value) == 0 {
		return nil, fmt.Errorf("Secret %s of spec.webhook has no entry %q", key, keyToken)
	}
	ts.store(key, keptToken{version: secret.ResourceVersion, value: value})
	return value, nil
}

func (ts *tokenCache) load(key types.NamespacedName) (keptToken, bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	kept, ok := ts.by[key]
	return kept, ok
}

func (ts *tokenCache) drop(key types.NamespacedName) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.by, key)
}

func (ts *tokenCache) store(key types.NamespacedName, kept keptToken) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.by == nil || len(ts.by) >= mostTokens {
		ts.by = map[types.NamespacedName]keptToken{}
	}
	ts.by[key] = kept
}

// secretOf returns the name of the Secret with a source's token; false: the source takes no
// webhooks.
func secretOf(gs *v1alpha1.GitSource) (types.NamespacedName, bool) {
	if gs.Spec.Webhook == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: gs.Namespace, Name: gs.Spec.Webhook.SecretRef.Name}, true
}

// noteSecrets has the token of each source read before the first push: a thousand namespaces may
// follow one repository. A push that had to wait for a thousand reads would come late, and one
// hook may take only hookTime.
func (w *Receiver) noteSecrets(ctx context.Context, c cache.Cache) error {
	informer, err := c.GetInformer(ctx, &v1alpha1.GitSource{})
	if err != nil {
		return fmt.Errorf("watching GitSources for webhooks: %w", err)
	}
	note := func(o any) {
		if gs, ok := o.(*v1alpha1.GitSource); ok {
			if key, ok := secretOf(gs); ok {
				w.named.Add(key)
			}
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: note,
		UpdateFunc: func(before, after any) {
			old, ok := before.(*v1alpha1.GitSource)
			if gs, is := after.(*v1alpha1.GitSource); ok && is && old.Generation != gs.Generation {
				note(gs)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching GitSources for webhooks: %w", err)
	}
	return nil
}

// readNoted reads the tokens that [Receiver.noteSecrets] has noted, until ctx ends. If one cannot
// be read, the next push says why.
func (w *Receiver) readNoted(ctx context.Context) {
	defer context.AfterFunc(ctx, w.named.ShutDown)()
	for {
		key, ends := w.named.Get()
		if ends {
			return
		}
		_, _ = w.tokens.of(ctx, w.c, w.own, key)
		w.named.Done(key)
	}
}
