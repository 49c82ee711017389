// Package foresee says what the controller will do next: which release a commit begins, ends or
// changes, and what each step waits for. It decides nothing itself, and calls [engine.Decide].
// Its tests are beside those of the engine, in whose model it is compared with what happens.
package foresee
