// Package gates answers whether the gate of a step is open. [Check] looks at a paused plan first,
// and then at a rollback. Approvals in the cluster and in Git come next, and the pause of the
// step. The first check that has an answer counts. It opens the gate, or says what is waited for.
// Nothing is changed by an answer: the engine passes the gate.
package gates
