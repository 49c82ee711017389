// Package namedsecrets refuses commits that bring a Secret which a GitSource names.
//
// Such a Secret has keys or credentials. A committer would else put others in place of them.
package namedsecrets
