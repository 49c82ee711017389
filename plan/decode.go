package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// unknownField is the error for a field that a type does not have.
const unknownField = "no such field"

// decode fills into, a pointer to an API type, from a manifest's content, and
// says of every field that does not fit what does not. Unlike a JSON decoder
// it says so of all fields at once, with the index in a list.
func decode(content any, into any, at *field.Path) field.ErrorList {
	if errs := misfits(content, reflect.TypeOf(into).Elem(), at); len(errs) > 0 {
		return errs
	}
	data, err := json.Marshal(content)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, into)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func misfits(v any, t reflect.Type, at *field.Path) field.ErrorList {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil || t.Kind() == reflect.Interface {
		return nil
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return misfitOfLeaf(v, t, at)
	}
	switch t.Kind() {
	case reflect.Struct:
		return misfitsOfStruct(v, t, at)
	case reflect.Map:
		return misfitsOfMap(v, t, at)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return misfitOfLeaf(v, t, at)
		}
		return misfitsOfSlice(v, t, at)
	default:
		return misfitOfLeaf(v, t, at)
	}
}

func misfitsOfStruct(v any, t reflect.Type, at *field.Path) field.ErrorList {
	m, ok := v.(map[string]any)
	if !ok {
		return misfit(v, "an object", at)
	}
	fields := map[string]reflect.Type{}
	jsonFields(t, fields)
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(m)) {
		ft, ok := fields[name]
		if !ok {
			errs = append(errs, field.Invalid(child(at, name), "", unknownField+nearest(name, fields)))
			continue
		}
		errs = append(errs, misfits(m[name], ft, child(at, name))...)
	}
	return errs
}

func misfitsOfMap(v any, t reflect.Type, at *field.Path) field.ErrorList {
	m, ok := v.(map[string]any)
	if !ok {
		return misfit(v, "an object", at)
	}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(m)) {
		errs = append(errs, misfits(m[name], t.Elem(), at.Key(name))...)
	}
	return errs
}

func misfitsOfSlice(v any, t reflect.Type, at *field.Path) field.ErrorList {
	l, ok := v.([]any)
	if !ok {
		return misfit(v, "a list", at)
	}
	var errs field.ErrorList
	for i, e := range l {
		errs = append(errs, misfits(e, t.Elem(), at.Index(i))...)
	}
	return errs
}

// misfitOfLeaf tries the decoding itself: what a type with its own decoder
// takes, only that decoder knows.
func misfitOfLeaf(v any, t reflect.Type, at *field.Path) field.ErrorList {
	data, err := json.Marshal(v)
	if err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	err = json.Unmarshal(data, reflect.New(t).Interface())
	if err == nil {
		return nil
	}
	if want := wanted(t); want != "" {
		return misfit(v, want, at)
	}
	return field.ErrorList{field.Invalid(at, string(data), strings.TrimPrefix(err.Error(), "json: "))}
}

func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[intstr.IntOrString]() {
		return "a whole number of 32 bits, or a string"
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		return "a time with its unit, such as 10s or 5m"
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return ""
	}
	switch {
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "a whole number of " + strconv.Itoa(t.Bits()) + " bits"
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Slice:
		return "base64 text"
	default:
		return ""
	}
}

func misfit(v any, want string, at *field.Path) field.ErrorList {
	got := "an object"
	switch v.(type) {
	case []any:
		got = "a list"
	case map[string]any:
	default:
		data, _ := json.Marshal(v) // a scalar that came out of JSON
		got = string(data)
	}
	return field.ErrorList{field.Invalid(at, "", fmt.Sprintf("must be %s, not %s", want, got))}
}

// jsonFields gathers the fields of a struct by their JSON name.
func jsonFields(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || options == "inline"):
			ft := f.Type
			for ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			jsonFields(ft, into)
		case name == "":
			into[f.Name] = f.Type
		default:
			into[name] = f.Type
		}
	}
}

// nearest names the field that differs from name in upper and lower case
// only: the commonest slip.
func nearest(name string, fields map[string]reflect.Type) string {
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		if strings.EqualFold(f, name) {
			return "; did you mean " + f + "?"
		}
	}
	return ""
}

func child(at *field.Path, name string) *field.Path {
	if at == nil {
		return field.NewPath(name)
	}
	return at.Child(name)
}

// describe says what is wrong without naming the field, and what to do.
func describe(e *field.Error) (fact, hint string) {
	fact, hint, _ = strings.Cut(e.Detail, "; ")
	if e.Type != field.ErrorTypeInvalid && e.Type != field.ErrorTypeNotSupported {
		return fact, hint
	}
	v := fmt.Sprint(e.BadValue)
	switch {
	case v == "" || strings.HasPrefix(fact, v+":") || strings.HasPrefix(fact, strconv.Quote(v)):
	case strings.HasPrefix(fact, "of "): // ValidateSteps: "20%" of 10 is 2
		fact = v + " " + fact
	default:
		fact = v + ": " + fact
	}
	return fact, hint
}

// isUnknown reports whether e is about a field that the type does not have.
func isUnknown(e *field.Error) bool { return strings.HasPrefix(e.Detail, unknownField) }

// under reports whether a field is at or below another.
func under(f, of string) bool {
	rest, ok := strings.CutPrefix(f, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func pathOf(f string) []string { return strings.Split(f, ".") }
