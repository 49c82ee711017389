// Package signature signs commits and checks who signed them, as git does
// with gpg.format=ssh and gpg.format=openpgp.
//
// To check, it knows no client and no clock. Keys come in as the data of a Secret,
// commits as the bytes of their objects, and the time as an argument. Nothing of a Secret
// is ever part of an error.
package signature
