package v1alpha1

import (
	"encoding/json"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Analysis has the metrics of a plan, and what follows from their verdicts.
//
// +kubebuilder:validation:XValidation:rule="!has(self.from)",message="from is for plans in Git; a GitSource puts the metrics of the files here"
type Analysis struct {
	// mode is Act or Observe. With Observe the metrics are measured and reported, and no
	// gate and no rollback depends on them.
	// +kubebuilder:default=Act
	// +optional
	Mode AnalysisMode `json:"mode,omitempty"`

	// onFailure is the reaction to the verdict Fail. Hold stops the release. Rollback
	// returns to the stable revision. Default: strategy.onFailure.
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`

	// onUnknown is the reaction to a verdict that stays Unknown until
	// unknownDeadlineSeconds have passed. Hold keeps the gate closed, and measuring goes
	// on. Rollback returns to the stable revision. Pass opens the gate.
	// +kubebuilder:default=Hold
	// +optional
	OnUnknown UnknownPolicy `json:"onUnknown,omitempty"`

	// unknownDeadlineSeconds is how long a verdict may stay Unknown after the duration of
	// the step's analysis has passed. Time in which no controller ran does not count.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:default=600
	// +optional
	UnknownDeadlineSeconds *int32 `json:"unknownDeadlineSeconds,omitempty"`

	// background names metrics that are measured from the first step's available pods
	// until hand-back, at every step.
	// +kubebuilder:validation:MaxItems=12
	// +kubebuilder:validation:items:MaxLength=40
	// +listType=set
	// +optional
	Background []string `json:"background,omitempty"`

	// from names BatchAnalysis files whose metrics are added. It is for plans in Git.
	// +kubebuilder:validation:MaxItems=12
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	From []string `json:"from,omitempty"`

	// metrics are what is measured. Names are unique.
	// +kubebuilder:validation:MaxItems=12
	// +listType=map
	// +listMapKey=name
	// +optional
	Metrics []Metric `json:"metrics,omitempty"`
}

// AnalysisMode says whether verdicts have consequences.
//
// +kubebuilder:validation:Enum=Act;Observe
type AnalysisMode string

const (
	// AnalysisAct lets gates and rollbacks depend on the verdicts.
	AnalysisAct AnalysisMode = "Act"
	// AnalysisObserve measures and reports alone.
	AnalysisObserve AnalysisMode = "Observe"
)

// UnknownPolicy is the reaction to a verdict that stays Unknown.
//
// +kubebuilder:validation:Enum=Hold;Rollback;Pass
type UnknownPolicy string

const (
	// UnknownHold keeps the gate closed, and goes on measuring.
	UnknownHold UnknownPolicy = "Hold"
	// UnknownRollback returns to the stable revision.
	UnknownRollback UnknownPolicy = "Rollback"
	// UnknownPass opens the gate.
	UnknownPass UnknownPolicy = "Pass"
)

// Defaults of fields that a plan leaves out.
const (
	// DefaultUnknownDeadlineSeconds is that of unknownDeadlineSeconds.
	DefaultUnknownDeadlineSeconds int32 = 600
	// DefaultProportionMinimum is that of minimum where the metric has a total.
	DefaultProportionMinimum int32 = 100
)

// StepAnalysis is a gate that opens when the metrics pass.
type StepAnalysis struct {
	// duration is how long the metrics are measured. It is counted from when the step's
	// pods are available.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('720h')",message="must be from 10s to 720h"
	// +required
	Duration metav1.Duration `json:"duration"`

	// metrics names the metrics that count at this step. Default: all of the plan.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=12
	// +kubebuilder:validation:items:MaxLength=40
	// +listType=set
	// +optional
	Metrics []string `json:"metrics,omitempty"`

	// approval requires an approval of the step, too.
	// +optional
	Approval bool `json:"approval,omitempty"`
}

// Decimal is a number, or a percentage such as 2%. In YAML it may be written with or without
// quotes; the API server takes whole numbers and strings.
type Decimal string

var decimal = regexp.MustCompile(`^-?[0-9]{1,15}(\.[0-9]{1,9})?%?$`)

// UnmarshalJSON reads a number, or a string with one.
func (d *Decimal) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	if !decimal.MatchString(text) {
		return fmt.Errorf("%q is not a number or a percentage such as 0.5 or 2%%", text)
	}
	*d = Decimal(text)
	return nil
}

// Metric is one measure, where it comes from and how it is judged.
//
// +kubebuilder:validation:XValidation:rule="[has(self.prometheus), has(self.web), has(self.job), has(self.datadog)].filter(p, p).size() == 1",message="must have exactly one of prometheus, web, job and datadog"
// +kubebuilder:validation:XValidation:rule="has(self.web) == has(self.condition)",message="condition is required with web, and is for web alone"
// +kubebuilder:validation:XValidation:rule="has(self.web) || has(self.job) || has(self.max) || has(self.min) || has(self.compare)",message="must have max, min or compare"
// +kubebuilder:validation:XValidation:rule="!((has(self.web) || has(self.job)) && (has(self.max) || has(self.min) || has(self.compare)))",message="max, min and compare are for prometheus and datadog"
// +kubebuilder:validation:XValidation:rule="!has(self.count) || has(self.web) || has(self.job)",message="count is for web and job; prometheus and datadog measure each interval of the duration"
type Metric struct {
	// name of the metric, unique in the plan.
	// +kubebuilder:validation:Pattern=`^([a-z0-9]|[a-z0-9][-a-z0-9]*[a-z0-9])$`
	// +kubebuilder:validation:MaxLength=40
	// +required
	Name string `json:"name"`

	// prometheus measures by PromQL.
	// +optional
	Prometheus *PrometheusMetric `json:"prometheus,omitempty"`
	// web measures by an HTTP request.
	// +optional
	Web *WebMetric `json:"web,omitempty"`
	// job measures by a Job of a suspended CronJob.
	// +optional
	Job *JobMetric `json:"job,omitempty"`
	// datadog measures by a query to Datadog.
	// +optional
	Datadog *DatadogMetric `json:"datadog,omitempty"`

	// scope is Revision or Deployment. A query of the scope Revision must name the
	// revision, and is asked of the stable revision, too.
	// +kubebuilder:default=Revision
	// +optional
	Scope MetricScope `json:"scope,omitempty"`

	// interval is the length of one window, and the time between two measurements.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="must be from 10s to 24h"
	// +kubebuilder:default="1m0s"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`

	// count is the number of measurements by web or job. Default: 1 with job, and one in
	// each interval of the duration with web.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Count int32 `json:"count,omitempty"`

	// warmUp is the time before the first window begins.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="must be from 0s to 24h"
	// +optional
	WarmUp *metav1.Duration `json:"warmUp,omitempty"`

	// delay is the time after the end of a window at which its values are asked for. The
	// last samples have been scraped by then.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('10m')",message="must be from 0s to 10m"
	// +kubebuilder:default="30s"
	// +optional
	Delay *metav1.Duration `json:"delay,omitempty"`

	// max is the highest value that passes.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,15}(\.[0-9]{1,9})?%?$`
	// +optional
	Max *Decimal `json:"max,omitempty"`
	// min is the lowest value that passes.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,15}(\.[0-9]{1,9})?%?$`
	// +optional
	Min *Decimal `json:"min,omitempty"`
	// compare judges the value against that of the stable revision in the same windows.
	// +optional
	Compare *Comparison `json:"compare,omitempty"`

	// condition is a CEL expression that is true if a web measurement passes. It has status,
	// the HTTP status as an int, and body, the decoded JSON.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Condition string `json:"condition,omitempty"`

	// failureLimit is the number of measurements that may fail. It does not apply to
	// metrics with a total: these are judged by the sums of their windows.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	FailureLimit int32 `json:"failureLimit,omitempty"`

	// minimum is the least evidence by which the metric is judged. It is the sum of total
	// where the metric has one, and else the number of values. With compare, each side needs
	// as much. Default: 100 with total, and 1 without.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Minimum int32 `json:"minimum,omitempty"`

	// noData is what an empty answer counts as: Unknown, or the value 0. A total of 0 is
	// Unknown in either case.
	// +kubebuilder:default=Unknown
	// +optional
	NoData NoDataPolicy `json:"noData,omitempty"`
}

// MetricScope is what a query is about.
//
// +kubebuilder:validation:Enum=Revision;Deployment
type MetricScope string

const (
	// ScopeRevision is for a query about the pods of one revision.
	ScopeRevision MetricScope = "Revision"
	// ScopeDeployment is for a query about all pods.
	ScopeDeployment MetricScope = "Deployment"
)

// NoDataPolicy is what an empty answer counts as.
//
// +kubebuilder:validation:Enum=Unknown;Zero
type NoDataPolicy string

const (
	// NoDataUnknown takes an empty answer for Unknown.
	NoDataUnknown NoDataPolicy = "Unknown"
	// NoDataZero takes an empty answer for 0.
	NoDataZero NoDataPolicy = "Zero"
)

// Comparison judges a metric against the stable revision.
type Comparison struct {
	// worse is the direction of harm.
	// +kubebuilder:validation:Enum=Higher;Lower
	// +required
	Worse Direction `json:"worse"`
	// by is the least difference that counts as harm. For a metric with total it is a
	// difference of proportions. Else a percentage is one of the stable revision's value.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,15}(\.[0-9]{1,9})?%?$`
	// +required
	By Decimal `json:"by"`
	// confidence is the confidence of the test, from 50% to 99.9%.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,15}(\.[0-9]{1,9})?%?$`
	// +kubebuilder:default="95%"
	// +optional
	Confidence Decimal `json:"confidence,omitempty"`
	// prove requires evidence that the difference is below by. Without it the metric
	// passes if no harm is seen.
	// +optional
	Prove bool `json:"prove,omitempty"`
}

// Direction is the direction of harm.
type Direction string

const (
	// WorseHigher is for metrics such as errors and latency.
	WorseHigher Direction = "Higher"
	// WorseLower is for metrics such as throughput.
	WorseLower Direction = "Lower"
)

// PrometheusMetric is a value by PromQL. Its placeholders are $(namespace), $(deployment),
// $(revision), $(replicaset), $(pods), $(commit), $(step) and $(window).
//
// +kubebuilder:validation:XValidation:rule="has(self.provider) != has(self.address)",message="must have exactly one of provider and address"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || has(self.address)",message="secretRef is for address; a provider has its own"
// +kubebuilder:validation:XValidation:rule="!(has(self.samples) && has(self.total))",message="samples and total exclude each other"
type PrometheusMetric struct {
	// provider is the name of a provider in the controller's configuration.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Provider string `json:"provider,omitempty"`
	// address is the URL of a Prometheus, such as https://prometheus.example.org.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://`
	// +optional
	Address string `json:"address,omitempty"`
	// secretRef names a Secret for address, with username and password, bearerToken,
	// ca.crt, or tls.crt and tls.key.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
	// query yields one series with one value.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Query string `json:"query"`
	// total is the query of the whole that query is a part of. The metric is then the
	// proportion of the two.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Total string `json:"total,omitempty"`
	// samples is the time between two values of a range query over each window.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s')",message="must be at least 5s"
	// +optional
	Samples *metav1.Duration `json:"samples,omitempty"`
	// syntax is PromQL or Unchecked. Unchecked is for other languages, such as MetricsQL:
	// the commit is applied with any query that has known placeholders.
	// +kubebuilder:validation:Enum=PromQL;Unchecked
	// +kubebuilder:default=PromQL
	// +optional
	Syntax QuerySyntax `json:"syntax,omitempty"`
}

// QuerySyntax is the language of a query.
type QuerySyntax string

const (
	// SyntaxPromQL is for queries that are parsed when the commit is checked.
	SyntaxPromQL QuerySyntax = "PromQL"
	// SyntaxUnchecked is for queries that are not.
	SyntaxUnchecked QuerySyntax = "Unchecked"
)

// WebMetric is an HTTP request whose answer passes or fails by the metric's condition.
type WebMetric struct {
	// url of the request. It may have placeholders.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://`
	// +required
	URL string `json:"url"`
	// method of the request.
	// +kubebuilder:validation:Enum=GET;POST;PUT
	// +kubebuilder:default=GET
	// +optional
	Method string `json:"method,omitempty"`
	// secretRef names a Secret with username and password, bearerToken, ca.crt, or tls.crt
	// and tls.key.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
	// body is a JSON object. Its strings may have placeholders.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Body *runtime.RawExtension `json:"body,omitempty"`
	// timeout of the request.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="must be from 1s to 10m"
	// +kubebuilder:default="30s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// JobMetric is a Job that passes by exit code 0 and fails by 1 to 125.
type JobMetric struct {
	// from names a suspended CronJob in the same namespace. Its Job is created as by
	// kubectl create job --from.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=52
	// +required
	From string `json:"from"`
	// timeout is how long the Job may take. After that its measurement is Unknown.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be from 1s to 24h"
	// +kubebuilder:default="10m0s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// DatadogMetric is a value by a Datadog query. It has the placeholders of PrometheusMetric.
//
// +kubebuilder:validation:XValidation:rule="has(self.provider) != has(self.secretRef)",message="must have exactly one of provider and secretRef"
type DatadogMetric struct {
	// provider is the name of a provider in the controller's configuration.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Provider string `json:"provider,omitempty"`
	// site is the Datadog site.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=datadoghq.com
	// +optional
	Site string `json:"site,omitempty"`
	// secretRef names a Secret with api-key and app-key.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
	// query yields one series. Its value is the sum of the points with total, and their
	// average without.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +required
	Query string `json:"query"`
	// total is the query of the whole that query is a part of.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Total string `json:"total,omitempty"`
}

// BatchAnalysis is a file in Git, never an object in the cluster. Plans take its metrics over
// by strategy.analysis.from.
type BatchAnalysis struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the file for plans of the same namespace. A field of its own and not
	// embedded, so that no CustomResourceDefinition is made for a kind that is only a file.
	Metadata metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has the metrics.
	Spec BatchAnalysisSpec `json:"spec"`
}

// BatchAnalysisSpec has metrics that plans share.
type BatchAnalysisSpec struct {
	// metrics are added to those of the plan.
	Metrics []Metric `json:"metrics"`
}

// Override lets the gate of one step open although metrics do not pass.
type Override struct {
	// metrics names the metrics that do not count at this step.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=12
	// +kubebuilder:validation:items:MaxLength=40
	// +listType=set
	// +required
	Metrics []string `json:"metrics"`
	// reason is why, for people.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +required
	Reason string `json:"reason"`
}

// Verdict is the judgement of a metric, or of all that count at a step.
//
// +kubebuilder:validation:Enum=Pass;Fail;Unknown
type Verdict string

// The verdicts.
const (
	VerdictPass    Verdict = "Pass"
	VerdictFail    Verdict = "Fail"
	VerdictUnknown Verdict = "Unknown"
)

// AnalysisStatus is what was measured at the current step, and in the background.
type AnalysisStatus struct {
	// step is the step that the verdict is about.
	Step int32 `json:"step"`
	// round counts the analyses that this release has begun. A step that loses its pods
	// begins another one.
	// +optional
	Round int32 `json:"round,omitempty"`
	// startTime is when the step's pods were available. Its windows are counted from it. It
	// is empty while none is measured for the step.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// backgroundStartTime is when the first step's pods were available. The windows of
	// background metrics are counted from it.
	// +optional
	BackgroundStartTime *metav1.Time `json:"backgroundStartTime,omitempty"`
	// verdict is Pass, Fail or Unknown.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// reason is one word for the verdict.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// metrics are those of the step and of the background.
	// +kubebuilder:validation:MaxItems=24
	// +listType=atomic
	// +optional
	Metrics []MetricStatus `json:"metrics,omitempty"`
	// records are the last verdicts of metrics at earlier steps.
	// +kubebuilder:validation:MaxItems=24
	// +listType=atomic
	// +optional
	Records []MetricRecord `json:"records,omitempty"`
}

// MetricStatus is what was measured of one metric.
type MetricStatus struct {
	// name of the metric.
	Name string `json:"name"`
	// background is true for the measurements of a background metric, over all steps.
	// +optional
	Background bool `json:"background,omitempty"`
	// specHash is a digest of what is asked. With another one measuring starts again. An
	// edit of limits leaves it as it is.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// verdict is Pass, Fail or Unknown.
	// +optional
	Verdict Verdict `json:"verdict,omitempty"`
	// reason is one word for the verdict.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason, with the values.
	// +optional
	Message string `json:"message,omitempty"`
	// next is the number of the next measurement. The first one is 1.
	// +optional
	Next int32 `json:"next,omitempty"`
	// count is the number of measurements with a value.
	// +optional
	Count int32 `json:"count,omitempty"`
	// unknown is the number of measurements without one.
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
	// update is the sum over the windows for the update revision: query/total.
	// +optional
	Update string `json:"update,omitempty"`
	// stable is the same for the stable revision.
	// +optional
	Stable string `json:"stable,omitempty"`
	// updateValues are the values of the update revision, oldest first, of a metric without
	// a total. Those of web and job are 1 for a measurement that passes, and 0 for one that
	// fails.
	// +kubebuilder:validation:MaxItems=120
	// +listType=atomic
	// +optional
	UpdateValues []string `json:"updateValues,omitempty"`
	// stableValues are those of the stable revision.
	// +kubebuilder:validation:MaxItems=120
	// +listType=atomic
	// +optional
	StableValues []string `json:"stableValues,omitempty"`
	// p is the p-value of the comparison with the stable revision.
	// +optional
	P string `json:"p,omitempty"`
	// recorded is true if the stable revision's values are those of earlier steps.
	// +optional
	Recorded bool `json:"recorded,omitempty"`
	// unknownTime is when the verdict was due and Unknown first. unknownDeadlineSeconds are
	// counted from it.
	// +optional
	UnknownTime *metav1.Time `json:"unknownTime,omitempty"`
	// pending is why the next measurement has no answer yet: the provider is asked again.
	// +optional
	Pending *UnknownReason `json:"pending,omitempty"`
	// measurements are the last five, oldest first.
	// +kubebuilder:validation:MaxItems=5
	// +listType=atomic
	// +optional
	Measurements []MetricMeasurement `json:"measurements,omitempty"`
}

// UnknownReason is why there is no value.
type UnknownReason struct {
	// reason is one word.
	Reason string `json:"reason"`
	// message explains it.
	// +optional
	Message string `json:"message,omitempty"`
}

// MetricMeasurement is one measurement.
type MetricMeasurement struct {
	// n is its number, from 1.
	N int32 `json:"n"`
	// from and to are its window.
	// +optional
	From *metav1.Time `json:"from,omitempty"`
	To   metav1.Time  `json:"to"`
	// update is the value of the update revision.
	// +optional
	Update string `json:"update,omitempty"`
	// stable is that of the stable revision.
	// +optional
	Stable string `json:"stable,omitempty"`
	// reason is why there is no value.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason.
	// +optional
	Message string `json:"message,omitempty"`
}

// MetricRecord is the last verdict of a metric.
type MetricRecord struct {
	// name of the metric.
	Name string `json:"name"`
	// background is true for a background metric.
	// +optional
	Background bool `json:"background,omitempty"`
	// step is the step of the verdict.
	Step int32 `json:"step"`
	// verdict is Pass, Fail or Unknown.
	Verdict Verdict `json:"verdict"`
	// reason is one word for the verdict.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message has the values.
	// +optional
	Message string `json:"message,omitempty"`
	// specHash is that of the metric.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// update is the sum over the windows of the step, or the median.
	// +optional
	Update string `json:"update,omitempty"`
	// stable is the same for the stable revision.
	// +optional
	Stable string `json:"stable,omitempty"`
	// p is the p-value of the comparison.
	// +optional
	P string `json:"p,omitempty"`
	// stableTotal is the sum over the windows of all steps until then.
	// +optional
	StableTotal string `json:"stableTotal,omitempty"`
	// stableValues are the values of the stable revision.
	// +kubebuilder:validation:MaxItems=120
	// +listType=atomic
	// +optional
	StableValues []string `json:"stableValues,omitempty"`
}
