// Package pool asks the questions of many releases at the same time, and keeps the answers.
//
// [Pool.Ask] names all questions of a release, each time. The pool begins those that are new
// and cancels those that are not named any more. So a restart and a new leader need no memory:
// they ask the same questions again. An answer is kept until its question is not named any
// more, which is after the status that has the answer was written.
//
// No caller waits for an answer, and no release waits for the server of another one:
//
//   - a host is asked at most 4 questions at the same time;
//   - a namespace never takes the last free place of a host, unless it has none there;
//   - a namespace has at most as many places of the pool as it leaves free;
//   - a namespace that has none gets one in any case, unless the host has no free place;
//   - a free place goes to the release that has waited for the longest since its last one.
package pool
