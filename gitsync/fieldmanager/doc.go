// Package fieldmanager says which field manager writes which field of an object, and hands
// fields from one to another.
//
// Server-side apply removes a field that its last manager does not apply any more. So before
// gitsync stops applying a field that has to stay, [HandOver] gives it to another manager with
// the value that it has. [TakeBack] gives gitsync the fields that rollout wrote, once no plan
// governs the Deployment. [Changes] names the managers that have taken fields from gitsync.
//
// It is a package of its own below those that apply, since all the traps of managed fields
// are here.
package fieldmanager
