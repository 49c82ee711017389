package job

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

const (
	// LabelMeasurement is a label of the Jobs that measure. Its value names the measurement.
	LabelMeasurement = "tranche.dev/measurement"
	// annotationInstantiate is kubectl's, on Jobs that it makes from a CronJob.
	annotationInstantiate = "cronjob.kubernetes.io/instantiate"

	// keptFor is how long the Job stays after its end: long enough for a controller that was
	// down to read the result.
	keptFor = 24 * time.Hour
	// grace is how long after its deadline a Job may take to be marked as failed.
	grace = time.Minute
	// create is what the account of the release needs to do.
	create = "create Jobs"
	// explainAfter is the age from which a Job that runs is asked what it waits for.
	explainAfter = 10 * time.Second
)

// Run is one measurement by a Job.
type Run struct {
	// Client reads and writes as the account that the context names. It has no cache.
	Client client.Client
	// Job names the Job, and From the CronJob of the same namespace.
	Job  types.NamespacedName
	From string
	// Key names the measurement.
	Key string
	// Owner is the BatchRelease, with which the Job goes.
	Owner metav1.OwnerReference
	// Timeout is how long the Job may run.
	Timeout time.Duration
	// Uptime is a time that no one can set, from any moment on.
	Uptime func() time.Duration

	waits string         // for what a pod of the Job was last seen to wait
	seen  *time.Duration // the uptime at which the Job was first seen
}

// Poll makes the Job unless it exists, and reports whether it has passed. As long as it runs,
// it returns an error that is Pending.
func (r *Run) Poll(ctx context.Context) (bool, error) {
	var j batchv1.Job
	err := r.Client.Get(ctx, r.Job, &j)
	switch {
	case apierrors.IsNotFound(err):
		return false, r.create(ctx)
	case err != nil:
		return false, r.apiError(err, "get Jobs")
	}
	owned := slices.ContainsFunc(j.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == r.Owner.UID })
	switch {
	case !owned || j.Labels[LabelMeasurement] != r.Key:
		return false, unknown.New(unknown.JobNotRun, "a Job of another origin has the name "+r.Job.Name)
	case j.DeletionTimestamp != nil:
		return false, unknown.New(unknown.JobNotRun, "the Job was deleted")
	}
	return r.result(ctx, &j)
}

// result reads the result from a Job's conditions.
func (r *Run) result(ctx context.Context, j *batchv1.Job) (bool, error) {
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete && j.Status.Succeeded == 0: // as with completions: 0
			return false, unknown.New(unknown.JobNotRun, "no pod of the Job has run")
		case c.Type == batchv1.JobComplete:
			return true, nil
		case c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonPodFailurePolicy:
			if r.ranOutOfMemory(ctx, j) {
				return false, unknown.New(unknown.JobNotRun, "OOMKilled")
			}
			return false, nil
		case c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded:
			return false, unknown.New(unknown.JobNotRun, r.late())
		case c.Type == batchv1.JobFailed:
			return false, unknown.New(unknown.JobNotRun, r.ending(ctx, j))
		}
	}
	if r.seen == nil {
		r.seen = new(r.Uptime())
	}
	age := r.Uptime() - *r.seen // the time of its creation is by a clock that may have jumped since
	if age > r.Timeout+grace {
		return false, unknown.New(unknown.JobNotRun, r.late())
	}
	if age > explainAfter {
		r.explain(ctx, j)
	}
	return false, &unknown.Error{Pending: true, Retry: true, Detail: r.waits}
}

// late says that the Job did not end in time, and for what it waited.
func (r *Run) late() string {
	if r.waits != "" {
		return "the Job did not end in time: " + r.waits
	}
	return "the Job did not end in time"
}

// create makes the Job.
func (r *Run) create(ctx context.Context) error {
	var from batchv1.CronJob
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Job.Namespace, Name: r.From}, &from)
	switch {
	case apierrors.IsNotFound(err):
		return unknown.Passing(unknown.JobNotRun, "CronJob "+r.From+" not found")
	case err != nil:
		return r.apiError(err, "get CronJobs")
	}
	r.seen = new(r.Uptime())
	if err := r.Client.Create(ctx, r.jobOf(&from)); err != nil && !apierrors.IsAlreadyExists(err) {
		return r.apiError(err, create)
	}
	return &unknown.Error{Pending: true, Retry: true}
}

// jobOf returns the Job of a CronJob, so that it ends by itself and its status has the result.
func (r *Run) jobOf(from *batchv1.CronJob) *batchv1.Job {
	t := from.Spec.JobTemplate.DeepCopy()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Job.Namespace, Name: r.Job.Name, Labels: t.Labels, Annotations: t.Annotations,
		OwnerReferences: []metav1.OwnerReference{r.Owner},
	}, Spec: t.Spec}
	set(&j.Labels, LabelMeasurement, r.Key)
	set(&j.Annotations, annotationInstantiate, "manual")
	s := &j.Spec
	s.Template.Spec.RestartPolicy = corev1.RestartPolicyNever // or the exit code would be lost with the restart
	s.BackoffLimit = new(int32(0))                            // 6 by default: a failure would not be seen before the deadline
	s.BackoffLimitPerIndex, s.MaxFailedIndexes, s.PodReplacementPolicy = nil, nil, nil
	s.Suspend, s.ManagedBy = nil, nil
	s.ActiveDeadlineSeconds = new(max(1, int64(r.Timeout/time.Second)))
	s.TTLSecondsAfterFinished = new(int32(keptFor / time.Second))
	s.PodFailurePolicy = exitCodes()
	return j
}

// exitCodes marks a Job that has failed by an exit code of 1 to 125, and no other.
func exitCodes() *batchv1.PodFailurePolicy {
	var failures []int32
	for code := int32(1); code <= 125; code++ {
		failures = append(failures, code)
	}
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		// First: a program that an eviction has ended may exit with 1.
		{Action: batchv1.PodFailurePolicyActionCount, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
		}},
		{Action: batchv1.PodFailurePolicyActionFailJob, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: failures,
		}},
	}}
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

// Refusals of the API server, as it words them.
var (
	// noRight is that of the authorizer. A quota and an admission policy answer with 403, too.
	noRight = regexp.MustCompile(`: User "[^"]*" cannot `)
	// jobName begins a refusal by a quota or a policy. Each Job has another name.
	jobName = regexp.MustCompile(`^(cron)?jobs\.batch "[^"]*" is (forbidden|invalid): `)
	// denied is how each refusal by a webhook begins, whatever code it has chosen.
	denied = regexp.MustCompile(`^admission webhook "[^"]*" denied the request`)
)

// apiError puts an answer of the API server into words. It repeats those of a quota, a policy or
// a webhook. If a Job is not valid, it names the fields without their values.
func (r *Run) apiError(err error, what string) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unknown.Passing(unknown.ProviderUnavailable, "the API server does not answer as expected")
	}
	said := status.Status().Message
	refuses := "the API server refuses the Job of CronJob " + r.From
	if what != create {
		refuses = "the API server refuses to " + what
	}
	fields := invalidFields(status.Status())
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err) && noRight.MatchString(said):
		return unknown.Passing(unknown.JobNotRun, "the account of the release may not "+what)
	case denied.MatchString(said), apierrors.IsForbidden(err), apierrors.IsInvalid(err) && fields == "":
		return unknown.Passing(unknown.JobNotRun, refuses+": "+words(jobName.ReplaceAllString(said, "")))
	case apierrors.IsInvalid(err):
		return unknown.New(unknown.JobNotRun, words(refuses+" as not valid: "+fields))
	case apierrors.IsBadRequest(err):
		return unknown.New(unknown.JobNotRun, refuses+" as not valid")
	}
	return unknown.Passing(unknown.ProviderUnavailable, "the API server does not answer as expected")
}

// invalidFields names the fields that are not valid; empty: a policy refuses, which names none.
func invalidFields(s metav1.Status) string {
	if s.Details == nil {
		return ""
	}
	var fields []string
	for _, c := range s.Details.Causes {
		if c.Field != "" && !slices.Contains(fields, c.Field) {
			fields = append(fields, c.Field)
		}
	}
	return strings.Join(fields, ", ")
}

// maxWords is how many bytes of an answer are repeated. A status has room for them, and for the
// longest name of a CronJob.
const maxWords = 150

// words returns a text in one line, without what cannot be printed, and cut.
func words(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxWords {
		return text
	}
	const more = "…"
	end := maxWords - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// pods lists the pods of a Job. Without the right to do so there are none: only explanations
// are lost.
func (r *Run) pods(ctx context.Context, j *batchv1.Job) []corev1.Pod {
	var list corev1.PodList
	selector := client.MatchingLabels{batchv1.ControllerUidLabel: string(j.UID)}
	if err := r.Client.List(ctx, &list, client.InNamespace(j.Namespace), selector, client.Limit(20)); err != nil {
		return nil
	}
	return list.Items
}

// ranOutOfMemory reports whether a container of the Job did, whatever code it has exited with.
func (r *Run) ranOutOfMemory(ctx context.Context, j *batchv1.Job) bool {
	for _, p := range r.pods(ctx, j) {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if c.State.Terminated != nil && c.State.Terminated.Reason == "OOMKilled" {
				return true
			}
		}
	}
	return false
}

// word is what a reason looks like. Another text is not repeated.
var word = regexp.MustCompile(`^[A-Za-z]{1,40}$`)

// ending says how the pods of a Job have ended that has failed without an exit code of its own.
func (r *Run) ending(ctx context.Context, j *batchv1.Job) string {
	for _, p := range r.pods(ctx, j) {
		if word.MatchString(p.Status.Reason) { // such as Evicted
			return p.Status.Reason
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && word.MatchString(c.Reason) {
				return c.Reason
			}
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if t := c.State.Terminated; t != nil && t.ExitCode != 0 && word.MatchString(t.Reason) {
				return t.Reason
			}
		}
	}
	return r.waits
}

// explain notes for what a pod of the Job waits.
func (r *Run) explain(ctx context.Context, j *batchv1.Job) {
	r.waits = ""
	for _, p := range r.pods(ctx, j) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && word.MatchString(c.Reason) {
				r.waits = c.Reason
			}
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && word.MatchString(w.Reason) {
				r.waits = w.Reason
			}
		}
	}
}
