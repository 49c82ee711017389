package invariants

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/rollout/engine"
)

// annotate has a user write an annotation of a ReplicaSet.
func (s *story) annotate(name, key, value string) {
	s.later(time.Millisecond)
	rs := s.rs[name].DeepCopy()
	rs.Annotations[key] = value
	e := metav1.ManagedFieldsEntry{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: s.now}, FieldsV1: &metav1.FieldsV1{},
	}
	e.FieldsV1.SetRawBytes([]byte(fmt.Sprintf(`{"f:metadata":{"f:annotations":{"f:%s":{}}}}`, key)))
	rs.ManagedFields = append(rs.ManagedFields, e)
	s.rs[name] = rs
	s.see(rs, false)
}

// own has a ReplicaSet of this owner, or of none.
func (s *story) own(name string, owners ...metav1.OwnerReference) {
	s.later(time.Millisecond)
	rs := s.rs[name].DeepCopy()
	rs.OwnerReferences = owners
	s.rs[name] = rs
	s.see(rs, false)
}

func (s *story) ours() metav1.OwnerReference {
	return *metav1.NewControllerRef(s.d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
}

// others are stories of other users at ReplicaSets. More is a breach if a policy
// keeps them off.
var others = []struct {
	because          string
	tell             func(s *story)
	want, forGuarded []string
}{
	{
		"a user makes the update revision larger than its gates allow",
		func(s *story) { s.to(3, 1); s.size("new", 2, "kubectl") }, nil, []string{"I3"},
	},
	{"Tranche makes it larger than that later", func(s *story) {
		s.to(2, 1)
		s.size("new", 2, "kubectl")
		s.later(time.Minute)
		s.size("new", 3, tranche)
	}, []string{"I3"}, []string{"I3", "I3"}},
	{"a user makes more than N+S", func(s *story) { s.to(4, 1); s.size("old", 6, "kubectl") }, nil, []string{"I2"}},
	{"Tranche adds a pod in the same moment", func(s *story) { s.size("old", 5, "kubectl"); s.size("new", 1, tranche) }, nil, []string{"I2"}},
	{"Tranche adds a pod long after", func(s *story) {
		s.size("old", 5, "kubectl")
		s.later(time.Minute)
		s.size("new", 1, tranche)
	}, []string{"I2"}, []string{"I2"}},
	{"the native controller brings back the only one", func(s *story) {
		s.size("old", 6, "kubectl")
		s.size("old", 4, native)
	}, nil, []string{"I10", "I2"}},
	{"the native controller brings back one of two", func(s *story) {
		s.to(3, 1)
		s.later(time.Minute)
		s.size("old", 5, "kubectl")
		s.size("old", 3, native)
	}, []string{"I10"}, []string{"I10", "I2"}},
	{"the native controller brings it back long after", func(s *story) {
		s.size("old", 6, "kubectl")
		s.later(time.Minute)
		s.size("old", 4, native)
	}, []string{"I10"}, []string{"I10", "I2"}},
	{"a user makes the update revision look saturated by its size (H6)", func(s *story) {
		s.to(3, 1)
		s.size("new", 4, "kubectl")
		s.later(time.Minute)
		s.size("old", 0, native)
	}, nil, []string{"I10", "I2", "I3"}},
	{"a user makes it look saturated by its annotation (H6)", func(s *story) {
		s.all()
		s.size("old", 1, "kubectl")
		s.size("new", 4, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationDesiredReplicas] = "5" })
		s.annotate("new", engine.AnnotationDesiredReplicas, "4")
		s.later(time.Minute)
		s.size("old", 0, native)
	}, nil, []string{"I10"}},
	{"Tranche makes it look saturated (H6)", func(s *story) {
		s.all()
		s.size("old", 1, "kubectl")
		s.size("new", 4, tranche)
		s.later(time.Minute)
		s.size("old", 0, native)
	}, []string{"I10"}, []string{"I10"}},
	{"one that a user made as large is not the update revision's", func(s *story) {
		s.to(4, 1)
		s.size("old", 3, "kubectl")
		s.size("old", 4, "kubectl")
		s.later(time.Minute)
		s.size("new", 0, native)
	}, []string{"I10"}, []string{"I10"}},
	{"a user takes the Deployment from one of two, and the native controller fills the other one", func(s *story) {
		s.to(3, 1)
		s.later(time.Minute)
		s.own("old")
		s.size("new", 4, native)
	}, nil, []string{"I10", "I3"}},
	{"the native controller fills it long after it has adopted the one again", func(s *story) {
		s.to(3, 1)
		s.own("old")
		s.own("old", s.ours())
		s.later(time.Minute)
		s.size("new", 4, native)
	}, []string{"I10", "I2", "I3"}, []string{"I10", "I2", "I3"}},
	{"a user takes the Deployment from one without pods", func(s *story) {
		s.size("new", 0, tranche)
		s.later(time.Minute)
		s.own("new")
		s.size("old", 3, native)
	}, []string{"I10"}, []string{"I10"}},
	{"Tranche fills up what a user has taken the Deployment from", func(s *story) {
		s.to(3, 1)
		s.later(time.Minute)
		s.own("old")
		s.own("old", s.ours())
		s.size("old", 5, tranche)
	}, nil, []string{"I2"}},
	{"a user writes another desired-replicas before the hand-back (H11)", func(s *story) {
		s.all()
		s.annotate("new", engine.AnnotationDesiredReplicas, "7")
		s.handBack(tranche)
	}, nil, []string{"I7"}},
	{"a user wrote it long before the hand-back (H11)", func(s *story) {
		s.all()
		s.annotate("new", engine.AnnotationDesiredReplicas, "7")
		s.later(time.Minute)
		s.handBack(tranche)
	}, []string{"I7"}, []string{"I7"}},
	{"a user writes it after the hand-back (H11)", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.annotate("new", engine.AnnotationDesiredReplicas, "7")
		s.later(time.Minute)
		s.deployment(native, func(d *appsv1.Deployment) { d.Status.ObservedGeneration = d.Generation + 1 })
	}, nil, []string{"I7"}},
	{"another annotation of a user is no excuse (H11)", func(s *story) {
		s.all()
		s.size("new", 4, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationDesiredReplicas] = "5" })
		s.annotate("new", engine.AnnotationRevision, "7")
		s.handBack(tranche)
	}, []string{"I7"}, []string{"I7"}},
}

func TestUnguarded(t *testing.T) {
	for _, tc := range others {
		for _, unguarded := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, unguarded %t", tc.because, unguarded), func(t *testing.T) {
				s, want := newStory(), tc.forGuarded
				if unguarded {
					s.v.Unguarded()
					want = tc.want
				}
				tc.tell(s)
				var got []string
				for _, b := range s.v.broken {
					rule, _, _ := strings.Cut(strings.TrimPrefix(b.What, "web: "), ":")
					got = append(got, rule)
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("broken (-want +got):\n%s%v", diff, s.v.broken)
				}
			})
		}
	}
}
