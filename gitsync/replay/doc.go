// Package replay keeps an approval from counting for more than the release or the plan that
// it was given for.
//
// A merge or a force-push can bring an old approval again. A [Check] says whether an approval
// is older than the release, by the history of the branch. The status of a GitSource lists
// the releases that have ended and the approvals of plans that were used. [AddEnded] and
// [UsePlanApprovals] keep these lists within their bounds. Once a list has lost an entry, the
// status says until when entries may be missing, and approvals of that time do not count.
//
// The package reads commits and the status. It renders nothing, and verifies no signature.
package replay
