package verdict

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Key names one measurement of one release. It is comparable. A process that asks again,
// after a crash or as another leader, has the same key.
type Key struct {
	// Namespace and Plan are those of the BatchRelease.
	Namespace, Plan string
	// Revision and Commit name the release, and Began is its status.startTime in Unix seconds.
	Revision, Commit string
	Began            int64
	// Step of the plan, and -1 for a background metric.
	Step int32
	// Round is status.analysis.round.
	Round int32
	// Metric is the name of the metric, and SpecHash the digest of what is asked.
	Metric, SpecHash string
	// N is the number of the measurement, from 1.
	N int32
}

// Hash returns a digest of the key: 32 hexadecimal digits. It is an Idempotency-Key, and ends
// the name of a Job.
func (k Key) Hash() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []any{
		k.Namespace, k.Plan, k.Revision, k.Commit, k.Began, k.Step, k.Round, k.Metric, k.SpecHash, k.N,
	}))
	return hex.EncodeToString(sum[:16])
}

// String is "errors 3 of step 1".
func (k Key) String() string {
	if k.Step < 0 {
		return fmt.Sprintf("%s %d in the background", k.Metric, k.N)
	}
	return fmt.Sprintf("%s %d of step %d", k.Metric, k.N, k.Step)
}

// Measurement is one question for a provider. It is a value, as an Action is: nothing in it
// depends on when it is asked.
type Measurement struct {
	Key
	// From and To are the window. For web and Job both are when the measurement is due.
	From, To time.Time
	// At is when to ask, and not before.
	At time.Time
	// Update is what to ask of the update revision, and Stable of the stable one. Stable is
	// nil where there is nothing to ask. Placeholders are expanded.
	Update, Stable *Question
	// Account is spec.serviceAccountName of the BatchRelease.
	Account string
	// ZeroIfEmpty: an empty answer is the value 0.
	ZeroIfEmpty bool
	// Condition judges the answer of a web metric.
	Condition string
	// Recorded: the stable revision has values of earlier steps. They count where it has no
	// traffic in the window.
	Recorded bool
	// Values are the placeholders of the update side, by name: revision, commit, step.
	Values map[string]string
}

// Question is what to ask of one revision: exactly one of its fields is set.
type Question struct {
	Prometheus *v1alpha1.PrometheusMetric
	Web        *v1alpha1.WebMetric
	Job        *v1alpha1.JobMetric
	Datadog    *v1alpha1.DatadogMetric
}

// Measured is the answer to a measurement.
type Measured struct {
	Key
	// Update is the answer about the update revision, and Stable about the stable one. Stable
	// is nil if it was not asked.
	Update, Stable *Answer
	// Retrying: the provider gave no answer, and the same window is asked again by itself. The
	// answers say why, and nothing of them is counted.
	Retrying bool
}

// Answer is what a provider says about one revision. Either it has values or it says why not.
// It never has anything of a Secret, and of an answer's body only the value.
type Answer struct {
	// Values are decimal strings, oldest first: one, or as many as a range query has. Each is
	// finite. A web measurement or a Job has 1 for pass, and 0 for fail.
	Values []string
	// Total is the value of the query total, as a decimal string; empty without one.
	Total string
	// Unknown is the reason for which there is no value: one of the reasons of this package.
	Unknown string
	// Message explains Unknown in a sentence. It is about the provider's answer, and has at
	// most 512 characters.
	Message string
}

// Reasons for which a measurement has no value.
const (
	// NoData: the answer is empty.
	NoData = "NoData"
	// NotANumber: a value is NaN or infinite.
	NotANumber = "NotANumber"
	// TotalIsZero: the query total yields 0, so there is no proportion.
	TotalIsZero = "TotalIsZero"
	// SeveralSeries: the answer has more than one series.
	SeveralSeries = "SeveralSeries"
	// PartialAnswer: the provider warns that data may be missing.
	PartialAnswer = "PartialAnswer"
	// BadAnswer: the answer cannot be read.
	BadAnswer = "BadAnswer"
	// ProviderUnavailable: no connection, a timeout, 429 or 5xx.
	ProviderUnavailable = "ProviderUnavailable"
	// ProviderRefused: 4xx. The query, the credentials or the address are wrong.
	ProviderRefused = "ProviderRefused"
	// ClockSkew: the clocks of provider and controller differ by more than 30 s.
	ClockSkew = "ClockSkew"
	// SecretNotReadable: the account may not read the Secret, or it lacks a key.
	SecretNotReadable = "SecretNotReadable"
	// JobNotRun: the Job did not come to an exit code from 0 to 125.
	JobNotRun = "JobNotRun"
	// ConditionFailed: the condition of a web metric cannot be evaluated on the answer.
	ConditionFailed = "ConditionFailed"
)
