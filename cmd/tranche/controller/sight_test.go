package controller

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestSight(t *testing.T) {
	refused := apierrors.NewForbidden(appsv1.Resource("replicasets"), "", errors.New("RBAC"))
	away := apierrors.NewServiceUnavailable("starting")
	type refusal struct {
		after time.Duration // the last one
		err   error
	}
	for name, tc := range map[string]struct {
		refusals []refusal
		lost     bool
	}{
		"for a minute":                {[]refusal{{0, refused}, {20 * time.Second, refused}, {40 * time.Second, refused}}, true},
		"a token that is not taken":   {[]refusal{{0, apierrors.NewUnauthorized("")}, {time.Minute, apierrors.NewUnauthorized("")}}, true},
		"for less":                    {[]refusal{{0, refused}, {59 * time.Second, refused}}, false},
		"again after it was granted":  {[]refusal{{0, refused}, {time.Hour, refused}, {30 * time.Second, refused}}, false},
		"and the server goes away":    {[]refusal{{0, refused}, {30 * time.Second, away}, {30 * time.Second, refused}}, false},
		"watches end, as they always": {[]refusal{{0, io.EOF}, {time.Minute, io.EOF}, {time.Minute, io.EOF}}, false},
		"no server for a minute":      {[]refusal{{0, away}, {time.Minute, away}, {time.Minute, away}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := newSight(), time.Now()
			read := toolscache.NewReflector(&toolscache.ListWatch{}, &appsv1.ReplicaSet{}, nil, 0)
			other := toolscache.NewReflector(&toolscache.ListWatch{}, &appsv1.Deployment{}, nil, 0)
			s.note(other, refused, now.Add(-time.Minute)) // each kind counts for itself
			for _, r := range tc.refusals {
				now = now.Add(r.after)
				s.note(read, r.err, now)
			}
			lost := false
			select {
			case <-s.lost:
				lost = true
			default:
			}
			if lost != tc.lost {
				t.Fatalf("lost: %t", lost)
			}
			if lost && !strings.Contains(s.because.Error(), "ReplicaSet could not be read for 1m0s") {
				t.Error(s.because)
			}
		})
	}
}
