package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// The answers are those of an API server. The message repeats what a quota or a policy says, and
// tells a right that is missing from it. It names a field that is not valid, without its value.
func TestAPIError(t *testing.T) {
	t.Parallel()
	const refused = "the API server refuses the Job of CronJob probe"
	for _, tt := range []struct {
		code         int32
		reason       metav1.StatusReason
		said, detail string
		want         string
		retry        bool
	}{
		{403, metav1.StatusReasonForbidden, `jobs.batch is forbidden: User "system:serviceaccount:shop:deployer" cannot create resource "jobs" ` +
			`in API group "batch" in the namespace "shop"`, `{}`, "the account of the release may not create Jobs", true},
		{401, metav1.StatusReasonUnauthorized, "Unauthorized", `{}`, "the account of the release may not create Jobs", true},
		{403, metav1.StatusReasonForbidden, `jobs.batch "web-0-1" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1, used: ` +
			`count/jobs.batch=0, limited: count/jobs.batch=0`, `{"name":"web-0-1","group":"batch","kind":"jobs"}`,
			refused + ": exceeded quota: jobs, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0", true},
		{422, metav1.StatusReasonInvalid, `jobs.batch "web-0-1" is forbidden: ValidatingAdmissionPolicy 'friday' with binding 'friday' denied ` +
			`request: no jobs on Friday`, `{"name":"web-0-1","group":"batch","kind":"jobs","causes":[{"message":"no jobs on Friday"}]}`,
			refused + ": ValidatingAdmissionPolicy 'friday' with binding 'friday' denied request: no jobs on Friday", true},
		{403, metav1.StatusReasonForbidden, `admission webhook "a.example.org" denied the request: no`, "null",
			refused + `: admission webhook "a.example.org" denied the request: no`, true},
		{500, metav1.StatusReasonInternalError, `admission webhook "a.example.org" denied the request: no`, "null",
			refused + `: admission webhook "a.example.org" denied the request: no`, true},
		{422, metav1.StatusReasonInvalid, `Job.batch "web-0-1" is invalid: spec.template.spec.containers[0].env[0].name: ` +
			`Invalid value: "hunter2": no`,
			`{"kind":"Job","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"hunter2\"",` +
				`"field":"spec.template.spec.containers[0].env[0].name"}]}`,
			refused + " as not valid: spec.template.spec.containers[0].env[0].name", false},
		{400, metav1.StatusReasonBadRequest, "json: hunter2", "{}", refused + " as not valid", false},
		{503, metav1.StatusReasonServiceUnavailable, "https://10.0.0.1", "{}", "the API server does not answer as expected", true},
		{403, metav1.StatusReasonForbidden, "a\x1b[31m\r\nb\u202e\x00c\xff" + strings.Repeat(" ü", 1000), "{}", refused + ": a [31m b c ü", true},
	} {
		answer := &apierrors.StatusError{ErrStatus: metav1.Status{Code: tt.code, Reason: tt.reason, Message: tt.said}}
		if err := json.Unmarshal([]byte(tt.detail), &answer.ErrStatus.Details); err != nil {
			t.Fatal(err)
		}
		r := &Run{From: "probe"}
		got := unknown.Of(r.apiError(fmt.Errorf("creating: %w", answer), create))
		same := got.Detail == tt.want || len(tt.said) > 1000 && strings.HasPrefix(got.Detail, tt.want)
		if !same || got.Retry != tt.retry {
			t.Errorf("%d %s\n got %q, retry %t\nwant %q, retry %t", tt.code, tt.said, got.Detail, got.Retry, tt.want, tt.retry)
		}
		if !utf8.ValidString(got.Detail) || len(got.Detail) > 256 || strings.ContainsFunc(got.Detail, unicode.IsControl) {
			t.Errorf("%d bytes: %q", len(got.Detail), got.Detail)
		}
	}
	got := unknown.Of((&Run{}).apiError(errors.New("https://10.0.0.1"), "get Jobs"))
	if got.Reason != unknown.ProviderUnavailable || strings.Contains(got.Detail, "10.0") {
		t.Errorf("no answer: %v", got)
	}
}
