package notes

import "testing"

// A note keeps why a release was rejected, when a later sync writes the rest again.
func TestWithRejection(t *testing.T) {
	const paragraph = "Tranche-Release: shop/web\nTranche-Revision: a\nStarted: then\nOutcome: RolledBack"
	const rejected = "\nRejected: by Ada, in abc: slow"
	if got := merged(paragraph+rejected+"\n", []string{paragraph}); got != paragraph+rejected+"\n" {
		t.Errorf("kept: %q", got)
	}
	if got := merged(paragraph+"\n", []string{paragraph + rejected}); got != paragraph+rejected+"\n" {
		t.Errorf("added: %q", got)
	}
}
