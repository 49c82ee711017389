// Command api writes docs/api.md, the reference of the API, from the
// CustomResourceDefinitions, and for BatchApproval, which has none, from its Go type.
// Run it in the root of the repository.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	crds     = "config/crd/bases/tranche.dev_"
	approval = "plan/v1alpha1/batchapproval_types.go"
	page     = "docs/api.md"
)

// preface is the head of the page.
const preface = "<!-- Written by docs/api: make generate -->\n" + `# API reference

The fields of the group ` + "`tranche.dev/v1alpha1`" + `, with types, defaults and validation. [GitSource](gitsource.md),
[BatchRelease](batchrelease.md) and [BatchApproval](batchapproval.md) explain their use.
`

// kubernetes is the reference of the API of Kubernetes.
const kubernetes = "https://kubernetes.io/docs/reference/kubernetes-api/"

// foreign are the fields that have a type of Kubernetes, which is not repeated here.
var foreign = map[string]string{
	"template":           "[PodTemplateSpec](" + kubernetes + "workload-resources/pod-template-v1/#PodTemplateSpec)",
	"deploymentStrategy": "[DeploymentStrategy](" + kubernetes + "workload-resources/deployment-v1/#DeploymentSpec)",
	"conditions":         "list of [Condition](" + kubernetes + "common-definitions/condition/)",
}

// schema is the part of a JSON schema that the page shows.
type schema struct {
	Description string            `json:"description"`
	Type        string            `json:"type"`
	Format      string            `json:"format"`
	Default     any               `json:"default"`
	Enum        []any             `json:"enum"`
	Minimum     *float64          `json:"minimum"`
	MinLength   *int              `json:"minLength"`
	MaxLength   *int              `json:"maxLength"`
	MinItems    *int              `json:"minItems"`
	MaxItems    *int              `json:"maxItems"`
	Pattern     string            `json:"pattern"`
	IntOrString bool              `json:"x-kubernetes-int-or-string"`
	Rules       []rule            `json:"x-kubernetes-validations"`
	Required    []string          `json:"required"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
}

// rule is a validation in CEL.
type rule struct {
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

func main() {
	log.SetFlags(0)
	text, err := reference()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

// reference returns the text of the page.
func reference() (string, error) {
	text := preface
	for _, plural := range []string{"gitsources", "batchreleases"} {
		kind, err := ofDefinition(crds + plural + ".yaml")
		if err != nil {
			return "", err
		}
		text += kind
	}
	kind, err := ofGoFile(approval)
	return text + kind, err
}

// ofDefinition returns the chapter of a kind from the file of its
// CustomResourceDefinition.
func ofDefinition(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the definition: %w", err)
	}
	var crd struct {
		Spec struct {
			Names struct {
				Kind       string
				ShortNames []string
			}
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	top := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s\n", crd.Spec.Names.Kind, escape(top.Description))
	fmt.Fprintf(&b, "\nShort name for kubectl: `%s`.\n", strings.Join(crd.Spec.Names.ShortNames, "`, `"))
	for _, part := range []string{"spec", "status"} {
		object(&b, crd.Spec.Names.Kind, part, top.Properties[part])
	}
	return b.String(), nil
}

// object writes the table of an object's fields, and those of the objects in it.
func object(b *strings.Builder, kind, path string, s schema) {
	fmt.Fprintf(b, "\n### %s %s\n\n%s\n", kind, path, escape(s.Description))
	if !strings.Contains(path, ".") { // those of a field are in its row
		for _, r := range s.Rules {
			fmt.Fprintf(b, "\nValidation: %s.\n", r.text())
		}
	}
	b.WriteString("\n| field | type | default | validation | description |\n|---|---|---|---|---|\n")
	names := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range names {
		f := s.Properties[name]
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", name, f.typeName(name, kind, path+"."+name), f.defaultValue(),
			cell(f.validation(slices.Contains(s.Required, name))), cell(f.Description))
	}
	for _, name := range names {
		if inner := s.Properties[name].fields(); inner != nil && foreign[name] == "" {
			object(b, kind, path+"."+name, *inner)
		}
	}
}

// fields returns the object that a field holds, or a list of; nil where it holds none.
func (s schema) fields() *schema {
	if s.Items != nil {
		inner := s.Items.fields()
		if inner != nil {
			inner.Description = cmp.Or(inner.Description, s.Description)
		}
		return inner
	}
	if len(s.Properties) == 0 {
		return nil
	}
	return &s
}

func (s schema) typeName(name, kind, path string) string {
	switch {
	case foreign[name] != "":
		return foreign[name]
	case s.IntOrString:
		return "integer or string"
	case s.Items != nil:
		return "list of " + s.Items.typeName("", kind, path)
	case len(s.Properties) > 0:
		anchor := strings.ToLower(kind) + "-" + strings.ToLower(strings.ReplaceAll(path, ".", ""))
		return "[object](#" + anchor + ")"
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

func (s schema) defaultValue() string {
	if s.Default == nil {
		return ""
	}
	text, err := yaml.Marshal(s.Default)
	if err != nil {
		log.Fatal(err)
	}
	return "`" + strings.TrimSpace(string(text)) + "`"
}

// validation returns what the API server checks of a field.
func (s schema) validation(required bool) string {
	var checks []string
	add := func(format string, args ...any) { checks = append(checks, fmt.Sprintf(format, args...)) }
	if required {
		add("Required")
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		add("One of %s", strings.Join(values, ", "))
	}
	if s.Minimum != nil {
		add("At least %v", *s.Minimum)
	}
	for _, bound := range []struct {
		value  *int
		format string
	}{
		{s.MinLength, "Characters: %d or more"}, {s.MaxLength, "At most %d characters"},
		{s.MinItems, "Entries: %d or more"}, {s.MaxItems, "At most %d entries"},
	} {
		if bound.value != nil {
			add(bound.format, *bound.value)
		}
	}
	if s.Pattern != "" {
		add("Matches `%s`", s.Pattern)
	}
	for _, r := range s.Rules {
		add("%s%s", strings.ToUpper(r.text()[:1]), r.text()[1:])
	}
	return strings.Join(checks, ". ")
}

// text is the message that a user gets, which explains the rule.
func (r rule) text() string { return escape(cmp.Or(r.Message, "`"+r.Rule+"`")) }

// ofGoFile returns the chapter of BatchApproval from its Go file.
func ofGoFile(file string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return "", fmt.Errorf("reading the type: %w", err)
	}
	kinds := map[string]schema{}
	for _, d := range parsed.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.TypeSpec)
			kinds[spec.Name.Name] = ofStruct(spec.Type.(*ast.StructType), decl.Doc.Text())
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## BatchApproval\n\n%s\n", escape(kinds["BatchApproval"].Description))
	object(&b, "BatchApproval", "spec", kinds["BatchApprovalSpec"])
	return b.String(), nil
}

func ofStruct(t *ast.StructType, doc string) schema {
	s := schema{Description: doc, Properties: map[string]schema{}}
	for _, f := range t.Fields.List {
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		name, options, _ := strings.Cut(tag, ",")
		kind, ok := f.Type.(*ast.Ident)
		if name == "" || !ok {
			continue
		}
		s.Properties[name] = schema{Description: f.Doc.Text(), Type: strings.Replace(kind.Name, "int32", "integer", 1)}
		if options == "" {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

// escape makes a comment Markdown: its lines are one paragraph, and placeholders are
// no tags.
func escape(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(strings.Join(strings.Fields(text), " "))
}

// cell is a text within a table.
func cell(text string) string {
	return strings.ReplaceAll(escape(text), "|", `\|`)
}
