// Package sandbox renders folders of Git in processes of their own, in which nothing
// can be reached and everything is bounded.
//
// kustomize reads URLs, keeps a global schema, and takes as much memory and time as its
// input asks for. The files that a kustomization makes it read are known only once it has
// run. So a [Pool] starts workers: the program itself, with another command, that serves
// [Serve]. A worker has no environment, no credentials and no file; on Linux the kernel
// refuses it sockets, programs and files (seccomp). It asks the Pool for each file of the
// commit and of its remote bases, on its standard input and output. A worker that takes
// more time or memory than it may is killed, and the next rendering has another one.
package sandbox
