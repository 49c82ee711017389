package gitsync

import "errors"

// newSigner makes a signer of the Secret that spec.writeBack.signingKey names.
func newSigner(map[string][]byte) (signer, error) {
	return nil, errors.New("has no key that can sign")
}
