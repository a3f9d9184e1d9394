// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

// Reasons of the loop's Events, explained in docs/monitoring.md.
const (
	reasonNotInherited              = "NotInherited"
	reasonInheritanceFailed         = "InheritanceFailed"
	reasonDriftRepaired             = "DriftRepaired"
	reasonTrackingAnnotationBroken  = "TrackingAnnotationBroken"
	reasonNoExecuteTaintsRollingOut = "NoExecuteTaintsRollingOut"
	reasonNoExecuteTaintsRolledOut  = "NoExecuteTaintsRolledOut"
	reasonNoExecuteTaintsSoftened   = "NoExecuteTaintsSoftened"
	reasonNoExecuteTaintsHeldUp     = "NoExecuteTaintsHeldUp"
	reasonNoExecuteTaintsHalted     = "NoExecuteTaintsHalted"
	reasonNoExecuteTaintsResumed    = "NoExecuteTaintsResumed"
	reasonNoExecuteTaintsApplied    = "NoExecuteTaintsApplied"
	reasonStartupGateOpened         = "StartupGateOpened"
	reasonStartupGateStuck          = "StartupGateStuck"
	reasonKubeconfigRefused         = "KubeconfigRefused"
	reasonWouldWrite                = "WouldWrite"
	reasonProviderKindUnavailable   = "ProviderKindUnavailable"
)

// noteLimit is the maximum size of an Event's note, in bytes, without the ellipsis. API servers reject notes of more than 1024 bytes
// (NoteLengthLimit in the Kubernetes pkg/apis/core/validation), and client-go's recorders do not truncate them.
const noteLimit = 1020

// brief is a recorder that truncates long notes.
type brief struct{ events.EventRecorder }

// Brief returns a recorder that truncates long notes, such as an error that names a thousand labels.
func Brief(recorder events.EventRecorder) events.EventRecorder {
	return brief{recorder}
}

// Eventf implements events.EventRecorder.
func (b brief) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	b.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", inherit.Shorten(fmt.Sprintf(note, args...), noteLimit))
}

// failed records an Event on the object about a failed write. It ignores conflicts, which are retried, and deleted objects.
func (d *Dependencies) failed(object runtime.Object, err error) {
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		d.Recorder.Eventf(object, nil, corev1.EventTypeWarning, reasonInheritanceFailed, "Inherit", "Failed to write inherited entries: %v", err)
	}
}

// leftOut records an Event on the object about entries that cannot be inherited.
func (d *Dependencies) leftOut(object runtime.Object, problems error) {
	d.Recorder.Eventf(object, nil, corev1.EventTypeWarning, reasonNotInherited, "Inherit", "%v", problems)
}

func result(err error) metrics.WriteResult {
	switch {
	case err == nil:
		return metrics.Applied
	case apierrors.IsConflict(err):
		return metrics.Conflict
	default:
		return metrics.Error
	}
}
