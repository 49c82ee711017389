package gitsync

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// isConflict tells a write that was decided on an older version.
func isConflict(err error) bool { return apierrors.IsConflict(err) }
