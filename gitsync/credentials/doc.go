// Package credentials reads what the Secrets of a GitSource hold.
//
// [Reader.Remote] is the way to its repository, and [Reader.Keys] are the keys of which
// signatures count. [Reader.Committer] is the author of what is written back, with its key.
// [Verify] refuses what leads to a snapshot and is not signed.
//
// Each sync reads the Secrets, so a new one needs no restart. No commit may bring a Secret
// that a GitSource names: see [NotFromGit].
package credentials
