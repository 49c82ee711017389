// Package view makes the documents that are shown of releases and sources. The terminal, the
// dashboard and the pictures show the same documents.
package view
