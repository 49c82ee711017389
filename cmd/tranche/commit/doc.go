// Package commit has the commands that move a release by a commit: approve, rollback,
// reject, pause and resume. Each renders the commit before it makes it.
package commit
