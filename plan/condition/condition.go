// Package condition compiles and evaluates the conditions of web metrics. These are CEL
// expressions over the answer of a server. They have the variables status, the HTTP status as
// an int, and body, the decoded JSON.
//
// An expression is checked when a commit is, and has no function that reaches beyond its
// inputs. A tenant writes it, and a server of the tenant sends the body. So its cost is
// bounded, and it ends with its context. Callers bound its time by that.
package condition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

const (
	// maxCost is in CEL's own unit. On long lists one of them may take a few microseconds.
	maxCost = 100_000
	// interruptEvery is the number of steps of a comprehension after which the context is read.
	interruptEvery = 100
)

// Condition is a compiled condition.
type Condition struct{ program cel.Program }

var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("status", cel.IntType),
		cel.Variable("body", cel.DynType),
		cel.OptionalTypes(),
		ext.Strings(),
	)
})

// Compile returns the condition of a text. Its error has the line and the column.
func Compile(text string) (*Condition, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("setting up CEL: %w", err)
	}
	ast, issues := env.Compile(text)
	if issues != nil && len(issues.Errors()) > 0 {
		var found []string
		for _, e := range issues.Errors() {
			found = append(found, fmt.Sprintf("%d:%d: %s", e.Location.Line(), e.Location.Column()+1, e.Message))
		}
		return nil, errors.New(strings.Join(found, "; "))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("1:1: the condition is of type %s, and must be a bool", t)
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(interruptEvery), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, fmt.Errorf("1:1: %w", err)
	}
	return &Condition{program}, nil
}

// Eval reports whether the condition holds on an answer. The body is what JSON decodes to,
// with whole numbers as int64. It is converted once: CEL would do so at each use of the name.
func (c *Condition) Eval(ctx context.Context, status int, body any) (bool, error) {
	out, _, err := c.program.ContextEval(ctx, map[string]any{"status": int64(status), "body": types.DefaultTypeAdapter.NativeToValue(body)})
	if err != nil {
		return false, fmt.Errorf("evaluating the condition: %w", err)
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the condition yields %s, and must be a bool", out.Type().TypeName())
	}
	return holds, nil
}
