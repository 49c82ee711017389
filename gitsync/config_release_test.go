package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// configured are manifests with a ConfigMap and a Secret that kustomize names
// after their content.
func configured(colour, token string) map[string]string {
	const volumes = `      volumes:
      - {name: settings, configMap: {name: settings}}
      - {name: token, secret: {secretName: token}}
      containers:
`
	return map[string]string{
		"deploy/web.yaml":  web("v1", "      containers:\n", volumes),
		"deploy/plan.yaml": strings.Replace(webPlan, "replicas: 1\n", "replicas: 50%\n", 1),
		"deploy/kustomization.yaml": "resources: [web.yaml, plan.yaml]\n" +
			"configMapGenerator: [{name: settings, literals: [colour=" + colour + "]}]\n" +
			"secretGenerator: [{name: token, literals: [token=" + token + "]}]\n",
	}
}

// mounted counts the pods by the content of the ConfigMap and the Secret that
// each mounts: both have to be there.
func (s *env) mounted() (map[string]int, error) {
	var pods corev1.PodList
	if err := s.c.Client.List(s.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{"app": "web"}); err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, p := range pods.Items {
		var cm corev1.ConfigMap
		var secret corev1.Secret
		for _, v := range p.Spec.Volumes {
			var err error
			switch {
			case v.ConfigMap != nil:
				err = s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: v.ConfigMap.Name}, &cm)
			case v.Secret != nil:
				err = s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: v.Secret.SecretName}, &secret)
			}
			if err != nil {
				return nil, fmt.Errorf("pod %s: %w", p.Name, err)
			}
		}
		count[cm.Data["colour"]+" "+string(secret.Data["token"])]++
	}
	return count, nil
}

// mount waits until the pods mount exactly what they should.
func (s *env) mount(want map[string]int) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("pods that mount %v", want), func() error {
		got, err := s.mounted()
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
			err = fmt.Errorf("they mount %v: %s", got, s.release("web").Status.Message)
		}
		return err
	})
}

// generated are the ConfigMaps and Secrets of the env by their content.
func (s *env) generated() map[string]client.Object {
	s.Helper()
	var maps corev1.ConfigMapList
	var secrets corev1.SecretList
	s.must(s.c.Client.List(s.Context(), &maps, client.InNamespace(s.ns)))
	s.must(s.c.Client.List(s.Context(), &secrets, client.InNamespace(s.ns)))
	all := map[string]client.Object{}
	for i, cm := range maps.Items {
		if strings.HasPrefix(cm.Name, "settings-") {
			all[cm.Data["colour"]] = &maps.Items[i]
		}
	}
	for i, secret := range secrets.Items {
		all[string(secret.Data["token"])] = &secrets.Items[i]
	}
	return all
}

// pruned waits until nothing of a content is there any more.
func (s *env) pruned(content ...string) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("the end of %s", content), func() error {
		s.lookNow()
		there := s.generated()
		for _, c := range content {
			if o := there[c]; o != nil {
				return fmt.Errorf("%T %s is there", o, o.GetName())
			}
		}
		return nil
	})
}

// A commit that changes only the content of a ConfigMap or a Secret is a release like any
// other. Old and new pods each mount their own, and the rollback finds what it needs. An
// object that no pod mounts any more goes.
func TestConfigRelease(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.source()
	s.applied(s.push(configured("blue", "a")))
	s.isAt("web", "ReleaseCompleted", 1)
	s.mount(map[string]int{"blue a": 2})
	former := s.generated()["a"].GetUID()

	token := s.push(configured("blue", "z")) // the ConfigMap stays
	s.applied(token)
	s.isAt("web", "WaitingForApproval", 0)
	s.mount(map[string]int{"blue a": 1, "blue z": 1})
	s.lookNow()
	s.mount(map[string]int{"blue a": 1, "blue z": 1})

	s.repo.Revert(token)
	s.repo.Push()
	s.applied(s.repo.Head())
	s.mount(map[string]int{"blue a": 2})
	s.isAt("web", "ReleaseCompleted", 1)
	if now := s.generated()["a"]; now == nil || now.GetUID() != former {
		t.Errorf("the old Secret is another one: %v", now)
	}
	s.pruned("z")

	// Both change; at the gate there is no pod at all for a while, and what
	// the stable revision needs is kept all the same.
	s.applied(s.push(configured("red", "b")))
	s.isAt("web", "WaitingForApproval", 0)
	size := func(replicas string) {
		t.Helper()
		files := configured("red", "b")
		files["deploy/web.yaml"] = strings.Replace(files["deploy/web.yaml"], "replicas: 2", "replicas: "+replicas, 1)
		s.applied(s.push(files))
	}
	size("0")
	s.mount(map[string]int{})
	s.lookNow()
	if there := s.generated(); there["blue"] == nil || there["a"] == nil {
		t.Errorf("what the stable revision refers to is gone: %v", there)
	}
	if kept := s.gs().Status.Kept; len(kept) != 2 || !strings.HasPrefix(kept[0].UsedBy, "the stable revision, ") {
		t.Errorf("kept: %+v", kept)
	}
	size("2")
	s.mount(map[string]int{"blue a": 1, "red b": 1})
	s.isAt("web", "WaitingForApproval", 0)
	s.approve("web")
	s.isAt("web", "ReleaseCompleted", 1)
	s.mount(map[string]int{"red b": 2})

	// The last stable revision has a way back, too; the one before has none.
	s.lookNow()
	if there := s.generated(); there["blue"] == nil || there["a"] == nil {
		t.Errorf("what the last stable revision refers to is gone: %v", there)
	}
	s.applied(s.push(configured("grey", "b")))
	s.isAt("web", "WaitingForApproval", 0)
	s.approve("web")
	s.isAt("web", "ReleaseCompleted", 1)
	s.pruned("blue", "a")
	if there := s.generated(); there["grey"] == nil || there["red"] == nil || there["b"] == nil || len(there) != 3 {
		t.Errorf("there is %v", there)
	}
}

// Pods of StatefulSets, and pods without an owner, keep what they mount as well, until
// they have ended.
func TestAPodKeepsItsConfigMap(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-0", Namespace: s.ns},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"is": "nowhere"}, // no other client writes its status
			Containers:   []corev1.Container{{Name: "db", Image: "registry.example.org/db", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}},
		},
	}
	s.source()
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/settings.yaml": configMap("settings", "one")}))
	s.must(s.c.Client.Create(t.Context(), pod))
	s.applied(s.push(map[string]string{"deploy/settings.yaml": ""}))
	if kept := s.gs().Status.Kept; len(kept) != 1 || kept[0].UsedBy != "Pod "+s.ns+"/db-0" {
		t.Errorf("kept is %+v", kept)
	}
	get(s, "settings", &corev1.ConfigMap{})
	s.kubectl("patch", "pod/db-0", "--subresource=status", "-p", `{"status":{"phase":"Succeeded"}}`)
	s.lookNow()
	s.isGone("settings", &corev1.ConfigMap{})
	if kept := s.gs().Status.Kept; len(kept) != 0 {
		t.Errorf("kept is %+v", kept)
	}
}
