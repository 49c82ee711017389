package jsonpatch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/rollout/jsonpatch"
)

// The answers are those of an API server of version 1.36. Only a patch that does not fit is one.
func TestIsInapplicable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason, answer string
		want           bool
	}{
		{"a member to be removed is gone", `{"message":"the server rejected our request due to an error in our request",
			"reason":"Invalid","details":{},"code":422}`, true},
		{"validation", `{"message":"Deployment.apps \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
			"reason":"Invalid","details":{"name":"web","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueInvalid",
			"message":"Invalid value: -1","field":"spec.replicas"}]},"code":422}`, false},
		{"a policy", `{"message":"deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'friday' with binding 'friday' ` +
			`denied request: no",
			"reason":"Invalid","details":{"name":"web","group":"apps","kind":"deployments","causes":[{"message":"no"}]},"code":422}`, false},
		{"a webhook", `{"message":"admission webhook \"a.example.org\" denied the request: no","reason":"Invalid","code":422}`, false},
		{"a webhook with those words", `{"message":"admission webhook \"a.example.org\" denied the request: the server rejected our request ` +
			`due to an error in our request","reason":"Invalid","details":{},"code":422}`, false},
		{"a conflict", `{"message":"the object has been modified","reason":"Conflict","details":{},"code":409}`, false},
		{"no right", `{"message":"deployments.apps \"web\" is forbidden","reason":"Forbidden","details":{},"code":403}`, false},
	} {
		err := &apierrors.StatusError{}
		if e := json.Unmarshal([]byte(tt.answer), &err.ErrStatus); e != nil {
			t.Fatal(e)
		}
		err.ErrStatus.Status = metav1.StatusFailure
		if got := jsonpatch.IsInapplicable(fmt.Errorf("writing: %w", err)); got != tt.want {
			t.Errorf("%s: %t", tt.reason, got)
		}
	}
	if jsonpatch.IsInapplicable(nil) || jsonpatch.IsInapplicable(errors.New("no connection")) {
		t.Error("no answer is one")
	}
}
