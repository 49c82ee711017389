package rollout

// ReleaseOwnership is tested from outside the package, beside a release.
var ReleaseOwnership = releaseOwnership
