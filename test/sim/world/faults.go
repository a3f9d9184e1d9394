// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

var errLost = errors.New("connection reset by peer")

// fault decides the fault of a step of Heirloom and of Cluster API. Operators, the provider and kubelets repeat their requests until they
// succeed, so their failures would prove nothing.
func (w *World) fault(server string, step apiserver.Step, dice *rand.Rand) (delay time.Duration, err error) {
	program := strings.HasPrefix(step.User, heirloomUser) || step.User == clusterAPI
	if !program {
		return 0, nil
	}
	if w.left(awayOf(server)) > 0 {
		return 0, errUnreachable
	}
	if pause := w.left(hangsOf(server)); pause > 0 {
		return pause, nil
	}
	if pause := w.stalled(step); pause > 0 && step.Phase == "event" {
		return pause, nil
	}
	if w.left(requestsFail) <= 0 {
		return 0, nil
	}
	return inStorm(step, dice)
}

// loses reports whether the answer to a write is lost.
func (w *World) loses(r *http.Request, user string) bool {
	return r.Method != http.MethodGet && w.left(requestsFail) > 0 && w.scheduler.choose("answer "+user+r.Method+r.URL.Path, 100) < 5
}

// stalled returns the remaining time in which a watch sends nothing.
func (w *World) stalled(step apiserver.Step) time.Duration {
	resource := resourceOf(step.Path)
	pause := max(w.left(stallOf(step.User, resource)), w.left(freezeOf(step.User)))
	if resource != resources["Node"].Resource && resource != "leases" {
		pause = max(pause, w.left(stallOf(step.User, "owners")))
	}
	return pause
}

// resourceOf returns the resource of a watch.
func resourceOf(at string) string {
	at, _, _ = strings.Cut(at, "?")
	return path.Base(at)
}

// inStorm returns the fault of a step during a storm, in which requests fail and are late.
func inStorm(step apiserver.Step, dice *rand.Rand) (delay time.Duration, err error) {
	switch chance := dice.IntN(100); {
	case step.Phase == "event":
		if chance < 20 {
			return time.Duration(dice.IntN(3000)) * time.Millisecond, nil
		}
	case chance < 3:
		return 0, errLost
	case chance < 5 && step.Phase == "request":
		return 0, apierrors.NewTooManyRequests("too many requests", 1)
	case chance < 7 && step.Phase == "store" && step.Method != http.MethodPost:
		return 0, apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "some", errors.New("the object has been modified"))
	case chance < 8 && step.Phase == "request":
		return 0, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "etcdserver: request timed out"}}
	case chance < 25:
		return time.Duration(dice.IntN(1500)) * time.Millisecond, nil
	}
	return 0, nil
}

// failed counts the refused writes of Heirloom while nothing goes wrong.
func (w *World) failed(user string, r *http.Request, status int) {
	if status < 300 || r.Method == http.MethodGet || !strings.HasPrefix(user, heirloomUser) || r.URL.Query().Has("dryRun") {
		return
	}
	w.history.failed(user, fmt.Sprintf("%s %s (%d)", r.Method, r.URL.Path, status))
}
