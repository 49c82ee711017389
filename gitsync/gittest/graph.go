package gittest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Graph makes commits at random, as several persons.
type Graph struct {
	*Repo
	Rand *rand.Rand
	// Keys are those of the persons. A person without a key does not sign.
	Keys []Key
	// Commits are all that were made, on whatever branch.
	Commits []string
}

// NewGraph makes a repository and a key for each of so many persons.
func NewGraph(t testing.TB, seed uint64, persons int) *Graph {
	t.Helper()
	g := &Graph{Repo: NewRepo(t), Rand: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a test's choices
	for range persons {
		g.Keys = append(g.Keys, NewPersonsKey(t))
	}
	return g
}

// As lets a person sign the next commits.
func (g *Graph) As(person int) {
	g.t.Helper()
	if person >= len(g.Keys) {
		g.Sign(nil)
		return
	}
	g.Sign(&g.Keys[person])
}

// Note adds the commit that is checked out, and returns it.
func (g *Graph) Note() string {
	g.t.Helper()
	c := g.Head()
	g.Commits = append(g.Commits, c)
	return c
}

// Rewrite sets the branch to any commit, and returns it.
func (g *Graph) Rewrite() string {
	g.t.Helper()
	c := g.Commits[g.Rand.IntN(len(g.Commits))]
	g.Git("reset", "-q", "--hard", c)
	return c
}

// Merge is a merge that was made.
type Merge struct {
	Commit string
	// Of is the commit whose tree it has.
	Of      string
	Parents []string
}

// Merge commits the tree of any commit, with the tip and any other commit as parents, in
// any order. It makes none where the other is the tip.
func (g *Graph) Merge(person int) (m Merge, ok bool) {
	g.t.Helper()
	of, other := g.Commits[g.Rand.IntN(len(g.Commits))], g.Commits[g.Rand.IntN(len(g.Commits))]
	if other == g.Head() {
		return m, false
	}
	m = Merge{Of: of, Parents: []string{g.Head(), other}}
	if g.Rand.IntN(2) == 0 {
		slices.Reverse(m.Parents)
	}
	g.As(person)
	args := []string{"commit-tree", "-m", fmt.Sprintf("Merge %d", len(g.Commits)), "-p", m.Parents[0], "-p", m.Parents[1]}
	if person < len(g.Keys) {
		args = append(args, "-S")
	}
	g.Git("reset", "-q", "--hard", g.Git(append(args, of+"^{tree}")...))
	m.Commit = g.Note()
	return m, true
}

// TakeBack reverts a commit as a person. It makes none where git finds a conflict, or
// nothing to do.
func (g *Graph) TakeBack(person int, commit string) (ok bool) {
	g.t.Helper()
	g.As(person)
	args := []string{"revert", "--no-edit"}
	if _, err := tryGit(g.Work, g.Env, "rev-parse", "-q", "--verify", commit+"^2"); err == nil {
		args = append(args, "-m", "1")
	}
	if _, err := tryGit(g.Work, g.Env, append(args, commit)...); err != nil {
		g.Git("reset", "-q", "--hard") // ends the revert, too
		return false
	}
	g.Note()
	return true
}
