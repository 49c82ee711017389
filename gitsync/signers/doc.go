// Package signers says who signed a commit, a tag or the content of a file.
//
// A [Policy] has the keys that the spec of a GitSource lists. It judges a commit or a tag by
// its bytes. A key that has expired still counts for a commit that was seen before that,
// so a source keeps the tips that it has seen.
//
// For a file, [LastChange] finds the commit that brought its content. That commit may have
// copied what another person wrote, so [Policy.SignerOfFile] also looks for the places where
// the history had the content before.
//
// Package signature verifies the signatures themselves. This package knows no cluster and
// renders nothing.
package signers
