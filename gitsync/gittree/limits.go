package gittree

import (
	"cmp"

	"github.com/go-git/go-git/v5/plumbing/storer"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits bound what one repository may cost, so that it cannot take what the others need.
// A commit that exceeds one is not applied, and the condition says which one it was. A
// zero stands for the default.
type Limits struct {
	// RepositorySize is how many bytes a mirror may have on disk, and one
	// fetch may bring. While a mirror is cloned again it has twice that.
	RepositorySize int64
	// FileSize is how many bytes a file that is read may have.
	FileSize int64
	// Files is how many files are read and folders listed for one commit;
	// what is read again counts again.
	Files int
	// Objects is how many objects a commit may render.
	Objects int
}

const (
	defaultRepositorySize = 1 << 30
	// etcd takes no object of more than 1.5 MiB; a file may hold several.
	defaultFileSize = 8 << 20
	defaultFiles    = 20_000
	// The inventory of so many takes half of what etcd lets an object have.
	defaultObjects = 5_000

	// filesOfMaxSize is how many files of the largest size are read for one
	// commit; of smaller ones more.
	filesOfMaxSize = 16
)

// DefaultLimits are the limits that hold where none are given.
func DefaultLimits() Limits { return Limits{}.WithDefaults() }

// WithDefaults puts the default in the place of each zero.
func (l Limits) WithDefaults() Limits {
	return Limits{
		RepositorySize: cmp.Or(l.RepositorySize, defaultRepositorySize),
		FileSize:       cmp.Or(l.FileSize, defaultFileSize),
		Files:          cmp.Or(l.Files, defaultFiles),
		Objects:        cmp.Or(l.Objects, defaultObjects),
	}
}

// LimitsOf returns the limits of the repository that a store is of: a store that knows
// them has a method Limits. A tree is opened in many places, and its limits are set in
// one.
func LimitsOf(s storer.EncodedObjectStorer) Limits {
	if l, ok := s.(interface{ Limits() Limits }); ok {
		return l.Limits().WithDefaults()
	}
	return DefaultLimits()
}

// FormatSize writes a number of bytes as the flags take it.
func FormatSize(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
