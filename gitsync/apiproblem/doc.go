// Package apiproblem puts answers of the API server into words.
//
// The API server says what is wrong with an object in a sentence, and seldom in fields of
// its answer. [Of] makes a [plan.Problem] of each fact: the field, the cause without the
// values of a Secret, a hint, and whether another try may succeed. The regular expressions
// for those sentences are here and in no other package, since a new version of Kubernetes
// may change them.
package apiproblem
