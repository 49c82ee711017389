package gittest

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Memory is a repository whose commits are made in this process. A test can make many
// thousands of them, which takes a process or two for each one with git.
type Memory struct {
	// Storage has the objects.
	Storage *filesystem.Storage

	t       testing.TB
	commits map[string]memoryCommit
}

type memoryCommit struct {
	files   map[string]string
	parents []string
}

// NewMemory makes a repository without commits in a folder, which may be in memory.
func NewMemory(t testing.TB, folder billy.Filesystem) *Memory {
	return &Memory{Storage: filesystem.NewStorage(folder, cache.NewObjectLRUDefault()), t: t, commits: map[string]memoryCommit{}}
}

// MemorySigner signs the commits of a Memory.
type MemorySigner struct {
	// Public is the authorized-key line.
	Public string
	signer ssh.Signer
}

// NewMemorySigner makes the Ed25519 key of a number, always the same one.
func NewMemorySigner(t testing.TB, number byte) *MemorySigner {
	t.Helper()
	key, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{number}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return &MemorySigner{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))), key}
}

// Files returns the files of a commit. The caller may change the map.
func (m *Memory) Files(commit string) map[string]string {
	return maps.Clone(m.commits[commit].files)
}

// Parents returns the parents of a commit.
func (m *Memory) Parents(commit string) []string { return m.commits[commit].parents }

// Has reports whether a commit has another one in its history, or is it.
func (m *Memory) Has(commit, other string) bool {
	seen := map[string]bool{commit: true}
	for queue := []string{commit}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == other {
			return true
		}
		for _, p := range m.Parents(queue[0]) {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return false
}

// Link is what the content of a symbolic link begins with. Its target follows.
const Link = "\x00link to "

// Commit makes a commit with exactly these files. Each commit has a date and a message of
// its own. A nil signer does not sign it.
func (m *Memory) Commit(by *MemorySigner, files map[string]string, parents ...string) string {
	m.t.Helper()
	n := len(m.commits)
	date := fmt.Sprintf("Ada Example <ada@example.org> %d +0000", 1_700_000_000+60*n)
	head := "tree " + m.tree(files, "").String() + "\n"
	for _, p := range parents {
		head += "parent " + p + "\n"
	}
	head += "author " + date + "\ncommitter " + date + "\n"
	message := fmt.Sprintf("\nChange %d\n", n)
	raw := head + message
	if by != nil {
		signature, err := sshsig.Sign(strings.NewReader(raw), by.signer, sshsig.HashSHA512, "git")
		if err != nil {
			m.t.Fatal(err)
		}
		armored := strings.TrimSpace(string(sshsig.Armor(signature)))
		raw = head + "gpgsig " + strings.ReplaceAll(armored, "\n", "\n ") + "\n" + message
	}
	commit := m.write(plumbing.CommitObject, []byte(raw)).String()
	m.commits[commit] = memoryCommit{maps.Clone(files), slices.Clone(parents)}
	return commit
}

// tree writes the files below a prefix.
func (m *Memory) tree(files map[string]string, prefix string) plumbing.Hash {
	m.t.Helper()
	var t object.Tree
	below := map[string]bool{}
	for file, content := range files {
		rest, ok := strings.CutPrefix(file, prefix)
		if !ok {
			continue
		}
		if dir, _, isBelow := strings.Cut(rest, "/"); isBelow {
			below[dir] = true
			continue
		}
		mode := filemode.Regular
		if target, ok := strings.CutPrefix(content, Link); ok {
			mode, content = filemode.Symlink, target
		}
		t.Entries = append(t.Entries, object.TreeEntry{Name: rest, Mode: mode, Hash: m.write(plumbing.BlobObject, []byte(content))})
	}
	for dir := range below {
		t.Entries = append(t.Entries, object.TreeEntry{Name: dir, Mode: filemode.Dir, Hash: m.tree(files, prefix+dir+"/")})
	}
	slices.SortFunc(t.Entries, func(a, b object.TreeEntry) int { return strings.Compare(sortedAs(a), sortedAs(b)) })
	o := m.Storage.NewEncodedObject()
	if err := t.Encode(o); err != nil {
		m.t.Fatal(err)
	}
	hash, err := set(m.Storage, o)
	if err != nil {
		m.t.Fatal(err)
	}
	return hash
}

// sortedAs is what git sorts the entries of a tree by.
func sortedAs(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

func (m *Memory) write(kind plumbing.ObjectType, content []byte) plumbing.Hash {
	m.t.Helper()
	hash, err := add(m.Storage, kind, content)
	if err != nil {
		m.t.Fatal(err)
	}
	return hash
}

// add adds an object to those of a repository, if it is not there.
func add(s storer.EncodedObjectStorer, kind plumbing.ObjectType, content []byte) (plumbing.Hash, error) {
	o := s.NewEncodedObject()
	o.SetType(kind)
	w, err := o.Writer()
	if err == nil {
		_, err = w.Write(content)
	}
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return set(s, o)
}

func set(s storer.EncodedObjectStorer, o plumbing.EncodedObject) (plumbing.Hash, error) {
	if s.HasEncodedObject(o.Hash()) == nil {
		return o.Hash(), nil
	}
	return s.SetEncodedObject(o)
}
