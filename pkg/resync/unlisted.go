// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/heirloom-dev/heirloom/pkg/providers"
)

// unlisted and unexplained are how soon, at the earliest, Heirloom retries an object that waits for the list of a provider's
// kind. The list itself wakes it, too: this is for objects that are not in the list, and to report the reason once it is known.
const (
	unlisted    = time.Minute
	unexplained = 5 * time.Second
)

// unlessNotListed returns the result of a reconcile. Waiting for the list of a provider's kind is no failure, which would be
// retried again and again. An Event on the Cluster says why the object waits. again is when to look again for another reason; 0 is
// never.
func (d Dependencies) unlessNotListed(
	ctx context.Context, namespace, clusterName string, err error, again time.Duration,
) (ctrl.Result, error) {
	if !providers.OnlyNotListed(err) {
		return ctrl.Result{}, err
	}
	var notListed *providers.NotListedError
	errors.As(err, &notListed)
	ctrl.LoggerFrom(ctx).V(1).Info("Waiting for the list of a provider's kind", "kind", notListed.Kind, "since", notListed.Since)
	if notListed.Reason == nil {
		return ctrl.Result{RequeueAfter: sooner(again, wait.Jitter(unexplained, 1))}, nil
	}
	cluster, err := d.Chain.Cluster(ctx, namespace, clusterName)
	if err != nil {
		return ctrl.Result{}, err //nolint:wrapcheck // it says what it is about
	}
	result := ctrl.Result{RequeueAfter: sooner(again, wait.Jitter(unlisted, 1))}
	if cluster == nil {
		return result, nil
	}
	d.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, reasonProviderKindNotListed, "Inherit",
		"What depends on a %s inherits nothing for now, because the API server cannot list this kind (%s); Heirloom's log says why",
		notListed.Kind, cmp.Or(apierrors.ReasonForError(notListed.Reason), "Unknown"))
	return result, nil
}
