package apiproblem

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Of returns what the API server answered about an object of a source. There is one problem
// per field, with the reason, unless the answer has one of its own. It is empty if err is nil.
func Of(reason string, o plan.Object, gs *v1alpha1.GitSource, err error) plan.Problems {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var ps plan.Problems
		for _, e := range joined.Unwrap() {
			ps = append(ps, Of(reason, o, gs, e)...)
		}
		return withoutTwins(ps)
	}
	if ps := plan.ProblemsOf(err); len(ps) > 0 {
		return ps
	}
	where := Where(o)
	status, ok := errors.AsType[*apierrors.StatusError](err)
	switch {
	case meta.IsNoMatchError(err):
		return plan.Problems{
			{
				Reason: v1alpha1.ReasonUnknownKind, Where: where,
				Err:  errors.New("the cluster does not know kind " + o.GetKind() + " of " + o.GetAPIVersion()),
				Hint: "install its CustomResourceDefinition, or put it below the same spec.path", Retry: true,
			},
		}
	case errors.Is(err, context.DeadlineExceeded) || !ok:
		return plan.Problems{{Reason: reason, Where: where, Err: errors.New(plan.OneLine(err.Error())), Retry: true}}
	}
	answer := status.Status()
	if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) && answer.Details != nil {
		return withoutTwins(statusProblems(reason, where, gs, withoutSecret(answer)))
	}
	ps := statusProblems(reason, where, gs, answer)
	if o.GroupVersionKind().Group == v1alpha1.Group {
		nameOldCRD(ps)
	}
	return ps
}

// nameOldCRD sets the hint of fields that the API server does not know. They are correct,
// since the manifest was checked before, so the CustomResourceDefinition is older.
func nameOldCRD(ps plan.Problems) {
	for _, p := range ps {
		if p.Err.Error() == noSuchField {
			p.Hint, p.Retry = plan.HintOlderCRD, true
		}
	}
}

// withoutTwins removes problems that two dry runs of one object have in common.
func withoutTwins(ps plan.Problems) plan.Problems {
	said := sets.New[string]()
	return slices.DeleteFunc(ps, func(p *plan.Problem) bool {
		if said.Has(p.Error()) {
			return true
		}
		said.Insert(p.Error())
		return false
	})
}

// Where returns the file and the name of an object, as messages have them.
func Where(o plan.Object) string {
	if o.File == "" {
		return o.String()
	}
	return o.File + ": " + o.String()
}

func statusProblems(reason, where string, gs *v1alpha1.GitSource, s metav1.Status) plan.Problems {
	if lacking := lacksRight.FindStringSubmatch(s.Message); s.Reason == metav1.StatusReasonForbidden && lacking != nil {
		return plan.Problems{
			{
				Reason: v1alpha1.ReasonForbidden, Where: where, Err: errors.New(shortened(groups.ReplaceAllString(s.Message, ""))),
				Hint: rightsHint(gs, lacking[1], lacking[2]),
			},
		}
	}
	if fields := UntypedFields(s.Message); len(fields) > 0 {
		var ps plan.Problems
		for _, f := range fields {
			ps = append(ps, &plan.Problem{Reason: reason, Where: where + ": " + f.Name, Err: errors.New(f.Fact), Hint: typeHint(f.Fact)})
		}
		return ps
	}
	if s.Details != nil && s.Reason == metav1.StatusReasonInvalid && len(s.Details.Causes) > 0 {
		var ps plan.Problems
		for _, c := range s.Details.Causes {
			ps = append(ps, &plan.Problem{
				Reason: reason, Where: strings.TrimSuffix(where+": "+c.Field, ": "), Err: errors.New(withoutValue(c.Message)),
				Hint: hintOf(c.Message),
			})
		}
		return ps
	}
	p := &plan.Problem{Reason: reason, Where: where, Err: errors.New(shortened(s.Message)), Hint: hintOf(s.Message), Retry: mayPass(s)}
	if s.Details != nil && s.Reason == metav1.StatusReasonNotFound && s.Details.Kind == "namespaces" {
		p.Hint = "create the namespace, or put its manifest below the same spec.path"
		p.Retry = true
	}
	return plan.Problems{p}
}

// lacksRight is how the API server says that an account may not do something. The groups
// are namespace and name of a service account, or the name of a user. Quotas, limits and
// policies forbid as well, and name no account.
//
//	configmaps "a" is forbidden: User "system:serviceaccount:shop:tenant" cannot get resource "configmaps" in …
//	roles.rbac.authorization.k8s.io "a" is forbidden: user "system:serviceaccount:shop:tenant" (groups=…)
//	is attempting to grant RBAC permissions not currently held: (in one line)
var lacksRight = regexp.MustCompile(
	`\bforbidden: [Uu]ser "(?:system:serviceaccount:([^":]+):)?([^"]+)".* (?:cannot|is attempting to grant) `)

// groups of the account come before what it lacks, and tell nothing.
var groups = regexp.MustCompile(` \(groups=\[[^\]]*\]\)`)

// unconverted is how the API server refuses values that it cannot decode, such as data of a
// Secret that is not base64. It calls that an error of its own.
var unconverted = regexp.MustCompile(
	`^failed to convert new object .*unable to convert unstructured object to [^:]+: (?:error decoding from json: )?`)

// mayPass tells answers of a server in trouble from those about the object.
func mayPass(s metav1.Status) bool {
	if unconverted.MatchString(s.Message) {
		return false
	}
	switch s.Reason {
	case metav1.StatusReasonInternalError, metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout,
		metav1.StatusReasonTooManyRequests, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonConflict:
		return true
	case metav1.StatusReasonForbidden:
		// Objects that use a quota up may go, and so does a namespace that is made again.
		return strings.Contains(s.Message, "exceeded quota") || strings.Contains(s.Message, "because it is being terminated")
	default:
		return s.Code >= http.StatusInternalServerError
	}
}

// withoutValue leaves out a value that is a whole object: what is wrong with
// it comes after it.
func withoutValue(message string) string {
	const before = "Invalid value: {"
	end := strings.LastIndex(message, "}: ")
	if strings.HasPrefix(message, before) && end > 0 {
		message = message[end+len("}: "):]
	}
	return plan.OneLine(message)
}

// secretKey is the field of a key in the data of a Secret.
var secretKey = regexp.MustCompile(`(?s)^data\[(.*)\]$`)

// refusedValue is how the API server begins with a value that it refuses.
var refusedValue = regexp.MustCompile(`(?s)^\w+ value: "(?:[^"\\]|\\.)*": `)

// withoutSecret leaves the values of a Secret out of an answer about it. A key that is not valid may
// be a part of one: in an env file, each further line of a value is a key.
func withoutSecret(s metav1.Status) metav1.Status {
	s.Details = s.Details.DeepCopy()
	for i := range s.Details.Causes {
		c := &s.Details.Causes[i]
		c.Message = refusedValue.ReplaceAllString(c.Message, "")
		if key := secretKey.FindStringSubmatch(c.Field); key != nil && len(validation.IsConfigMapKey(key[1])) > 0 {
			c.Field, c.Message = "data", "a key is not valid: "+c.Message+"; a value of several lines needs a file of its own"
		}
	}
	return s
}

// rightsHint names the account, which need not be the one that the GitSource
// names: there is a default one, and the controller's own.
func rightsHint(gs *v1alpha1.GitSource, namespace, name string) string {
	switch {
	case namespace == "":
		return "give user " + name + " the right"
	case namespace != gs.Namespace && gs.Spec.ServiceAccountName == "":
		return "give the controller's service account " + namespace + "/" + name +
			" the right, or name one that has it in spec.serviceAccountName"
	default:
		return "give service account " + namespace + "/" + name + " the right"
	}
}

func hintOf(message string) string {
	if !IsImmutableMessage(message) {
		return ""
	}
	return "put the old value back, or let the object be deleted and created again with annotation " + v1alpha1.AnnotationForce + ": \"true\""
}

// IsImmutable reports whether an object was refused for nothing but fields that
// may not change.
func IsImmutable(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !IsImmutable(e) })
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.Status().Reason != metav1.StatusReasonInvalid || status.Status().Details == nil {
		return false
	}
	for _, c := range status.Status().Details.Causes {
		if !IsImmutableMessage(c.Message) {
			return false
		}
	}
	return len(status.Status().Details.Causes) > 0
}

// immutable is how the API server tells that a field may not change: each kind
// in words of its own.
var immutable = regexp.MustCompile(`immutable|may not change once set|may not be changed in an update|` +
	`updates? to \S.* (is|are) forbidden|updates may not change fields other than|cannot change roleRef`)

// IsImmutableMessage reports whether the API server says that a field may not change.
func IsImmutableMessage(m string) bool { return immutable.MatchString(m) }

// untyped is how the API server tells fields that the schema does not have:
//
//	failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): .spec.x: field not declared in schema
var untyped = regexp.MustCompile(`(?s)^failed to create typed patch object \([^)]*\):\s*(?:errors:\s*)?(.*)$`)

// strict is how it tells them of other patches:
//
//	strict decoding error: unknown field "spec.template.spec.x"
var strict = regexp.MustCompile(`unknown field "([^"]+)"`)

const noSuchField = "no such field"

// FieldFact is a field of an object, and what is wrong with it.
type FieldFact struct{ Name, Fact string }

// UntypedFields returns the fields of a message that the schema does not have, or that have
// another type.
func UntypedFields(message string) []FieldFact {
	var fields []FieldFact
	for _, m := range strict.FindAllStringSubmatch(message, -1) {
		fields = append(fields, FieldFact{m[1], noSuchField})
	}
	m := untyped.FindStringSubmatch(message)
	if m == nil {
		return fields
	}
	for line := range strings.Lines(m[1]) {
		name, fact, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		if fact == "field not declared in schema" {
			fact = noSuchField
		}
		// The value that stands there may be a Secret's.
		fact, _, _ = strings.Cut(fact, ", got ")
		fields = append(fields, FieldFact{strings.TrimPrefix(name, "."), plan.OneLine(fact)})
	}
	return fields
}

// typeHint is for the most frequent of wrong types: YAML has more numbers and
// booleans than people think.
func typeHint(fact string) string {
	if fact != "expected string" {
		return ""
	}
	return "numbers, and words such as true, no and y, need quotes"
}

// invalid is how the API server begins: Deployment.apps "web" is invalid:
var invalid = regexp.MustCompile(`^\S+ "[^"]*" is invalid: `)

func shortened(message string) string {
	return plan.OneLine(unconverted.ReplaceAllString(invalid.ReplaceAllString(message, ""), ""))
}
