package rollout

import (
	"errors"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/engine"
)

// eventInterval is how long after an event of a failing hand-back the next one follows. An
// event lives for an hour, if the API server does not say otherwise.
const eventInterval = 30 * time.Minute

// handBacks remembers the Deployments without a plan that could not be handed back, and
// when the last event said so. There is no BatchRelease any more whose status could.
type handBacks struct {
	mu sync.Mutex
	of map[types.NamespacedName]sentEvent
}

type sentEvent struct {
	uid  types.UID
	at   time.Time
	what string
}

// isNews notes a failure, and reports whether an event is to tell of it. It is for the
// first one of its reason, and for one again before that event is gone.
func (h *handBacks) isNews(d *appsv1.Deployment, reason string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	if last, ok := h.of[key]; ok && last.uid == d.UID && last.what == reason && now.Sub(last.at) < eventInterval {
		return false
	}
	h.of[key] = sentEvent{d.UID, now, reason}
	return true
}

func (h *handBacks) forget(deployment types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, deployment)
}

// tellNotHandedBack tells of a Deployment that no plan governs why it is not handed back.
// The tries go on, less and less often, and there is not an event for each.
func (a *abandonment) tellNotHandedBack(d *appsv1.Deployment, action engine.Action, err error) {
	if apierrors.IsConflict(err) || errors.Is(err, errLookAgain) {
		return
	}
	e := engine.Event{Warning: true, Reason: engine.ReasonRequestFailed, Message: err.Error() + "; it is tried again, less and less often"}
	if refused(err) {
		e.Reason = engine.ReasonWriteRefused
		if _, ok := action.(engine.HandBack); ok {
			e.Reason = engine.ReasonHandBackRefused
		}
	}
	if a.handBacks.isNews(d, e.Reason, a.now()) {
		a.tell(d, e)
	}
}
