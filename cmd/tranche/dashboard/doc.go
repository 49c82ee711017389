// Package dashboard serves the page that shows releases and sources in a browser.
//
// The server reads as its reader: with a kubeconfig on a laptop, and with a
// SubjectAccessReview for each namespace in a cluster. It holds no credential of Git.
package dashboard
