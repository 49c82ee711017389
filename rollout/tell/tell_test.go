package tell_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/action"
	"github.com/tranche-dev/tranche/rollout/tell"
)

// recorder keeps the reason and the note of each event.
type recorder struct{ sent []string }

func (r *recorder) Eventf(_ runtime.Object, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.sent = append(r.sent, reason+" "+fmt.Sprintf(note, args...))
}

var (
	release    = client.ObjectKey{Namespace: "shop", Name: "web"}
	deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
)

func resize(name string, from, to int32, why action.Why) engine.Action {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(from)}}
	return engine.Resize{Why: why, ReplicaSet: rs, To: to}
}

// The first sizes of a step have an event at once. Those that follow within a moment share one,
// when the step ends or the moment is over.
func TestTeller_Sizes(t *testing.T) {
	var r recorder
	now := time.Unix(0, 0)
	teller := tell.New(&r, func() time.Time { return now })
	round := func(after time.Duration, ended bool, actions ...engine.Action) {
		now = now.Add(after)
		for _, a := range actions {
			teller.Written(release, deployment, a)
		}
		teller.Sizes(release, deployment, ended)
	}
	round(time.Hour, false, resize("new", 0, 3, "step 0"), resize("old", 10, 8, "step 0"))
	round(time.Second, false, resize("new", 3, 5, "step 0"))
	round(time.Second, false, resize("old", 8, 5, "step 0"), resize("old", 5, 5, "step 0"))
	round(time.Second, true)
	round(time.Second, true)
	round(time.Second, false, resize("new", 5, 7, "step 1"))
	round(time.Second, false, resize("new", 7, 8, "step 1"))
	round(time.Second, false, resize("new", 8, 9, "step 2"), engine.Hold{Why: "release", Revision: "v2"}, engine.Forget{})
	round(5*time.Second, false)
	want := []string{
		"ScalingReplicaSet resize ReplicaSet new from 0 to 3; resize ReplicaSet old from 10 to 8, step 0",
		"ScalingReplicaSet resize ReplicaSet new from 3 to 5; resize ReplicaSet old from 8 to 5, step 0",
		"ScalingReplicaSet resize ReplicaSet new from 5 to 7, step 1",
		"Held hold at template v2, release",
		"ScalingReplicaSet resize ReplicaSet new from 7 to 8, step 1; resize ReplicaSet new from 8 to 9, step 2",
	}
	if diff := cmp.Diff(want, r.sent); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The API server refuses a note of more than 1024 bytes.
func TestTeller_LongNote(t *testing.T) {
	var r recorder
	tell.New(&r, time.Now).Tell(deployment, engine.Event{Reason: "WriteRefused", Message: strings.Repeat("é", 600)})
	note := strings.TrimPrefix(r.sent[0], "WriteRefused ")
	if len(note) > 1024 || note != strings.Repeat("é", len(note)/2-1)+"…" {
		t.Errorf("%d bytes: %s", len(note), note)
	}
}
