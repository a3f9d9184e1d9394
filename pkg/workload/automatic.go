// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// preferred are the ways of AdmitAutomatically, the best first.
func preferred() []string {
	return []string{AdmitByPolicy, AdmitByWebhook}
}

// conditional is a Way that not every workload cluster can have.
type conditional interface {
	// Missing says what a workload cluster lacks for it, as a part of a sentence; nothing if it lacks nothing. It is called
	// often, and makes no request as long as nothing is missing.
	Missing(server client.Client) (string, error)
	// Try finds out whether the kubeconfig's user may set it up, and sets up nothing.
	Try(ctx context.Context, server client.Client) error
}

// best sets up the best way that the workload cluster can have. It returns its name, and the worse ones, which are to be
// removed. It keeps a better one that is refused now, or that an API server does not serve now, as in the middle of an upgrade:
// otherwise it would not work when the API server serves it again (see docs/workload-clusters.md#limits). With an error, the
// best one is unknown.
func (v *visit) best(ctx context.Context) (way string, worse []string, err error) {
	var reasons []string
	mend := false
	for i, name := range preferred() {
		why, forbidden, err := v.obstacle(ctx, name)
		if err != nil {
			v.failed(name, err)
			return "", nil, err
		}
		if why == "" {
			v.way = name
			v.keep() // first, so that every later change of a Machine wakes the Cluster
			err := v.setUp(ctx, name)
			if !refused(err) {
				v.fallBack(name, reasons, mend)
				return name, preferred()[i+1:], err
			}
			why, forbidden = err.Error(), true
		}
		reasons = append(reasons, fmt.Sprintf("Not by %s: %s.", name, why))
		mend = mend || forbidden
	}
	v.way = AdmitByLoop
	v.fallBack(AdmitByLoop, reasons, true)
	return AdmitByLoop, nil, nil
}

// obstacle returns why the workload cluster cannot have a way to admit its Nodes, or nothing if it can. forbidden says that
// only the rights of the kubeconfig's user are missing.
func (v *visit) obstacle(ctx context.Context, name string) (why string, forbidden bool, err error) {
	way, there := v.Ways[name]
	if !there {
		return "there is no URL for it (--workload-webhook-url)", false, nil
	}
	able, ok := way.(conditional)
	if !ok {
		return "", false, nil
	}
	why, err = able.Missing(v.server)
	if err != nil || why != "" || v.way == name { // it has been set up
		return why, false, err
	}
	if err = able.Try(ctx, v.server); refused(err) {
		return err.Error(), true, nil
	}
	return "", false, err
}

// refused reports whether an API server does not let the kubeconfig's user do something. A refusal because a namespace is
// terminating is only temporary, and does not count.
func refused(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// fallBack notes, once per change, that Nodes are not admitted in the best way, what that means, and what would help. A webhook
// in a cluster that has no policies is fine.
func (v *visit) fallBack(way string, reasons []string, mend bool) {
	note := ""
	if mend {
		note = "Nodes are admitted by webhook. "
		if way == AdmitByLoop {
			note = "The loop alone applies what new Nodes inherit, a moment after they register: until then Pods can be scheduled " +
				"that their taints keep away. Label " + AdmissionLabel + "=none accepts that. "
		}
		note += strings.Join(reasons, " ")
	}
	if note != "" && note != v.told {
		v.note(FellBack, way, "%s", note)
	}
	v.told = note
	v.keep()
}
