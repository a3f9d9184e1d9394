// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

// skew is how much the clocks of this machine and the leader's may differ.
const skew = time.Minute

func installed(ctx context.Context, w *world) Result {
	found, err := w.installation()
	if err == nil {
		err = found.deploymentErr
	}
	if err != nil {
		return unknown("The Deployments could not be read: %v", err)
	}
	if found.deployment == nil {
		return notHere(found)
	}
	result := w.running(ctx, found.deployment)
	if len(found.neighbours) > 0 {
		result = result.with(settings.Several(client.ObjectKeyFromObject(found.deployment), found.neighbours))
	}
	return result
}

// notHere says what it means that there is no Deployment.
func notHere(found *installation) Result {
	switch {
	case found.configErr != nil:
		return unknown("There is no Deployment of Heirloom, and the webhook configurations could not be read: %v", found.configErr)
	case len(found.configurations) == 0:
		return failed("Heirloom is not installed: there is neither a Deployment nor a webhook configuration.").
			next("Install it: docs/getting-started.md#install")
	case len(found.services()) == 0:
		return unknown("There is no Deployment of Heirloom: its webhooks are called by URL, so that it runs elsewhere.").
			next("Look at the checks mutation and validation, and at Heirloom's log and metrics where it runs.")
	case found.namespace != "":
		return failed("There is no Deployment of Heirloom in namespace %s, but its webhooks are registered.", found.namespace).
			next("Give the namespace in which Heirloom is installed with --heirloom-namespace, or leave the flag out.")
	}
	return failed("There is no Deployment of Heirloom, but its webhooks are registered.").
		next(`Run "helm upgrade" with the same values, or "helm uninstall" and docs/uninstall.md.`)
}

// running checks the replicas of a Deployment, and whether one of them leads.
func (w *world) running(ctx context.Context, d *appsv1.Deployment) Result {
	name, wanted, has := fmt.Sprintf("Deployment %s/%s", d.Namespace, d.Name), ptr.Deref(d.Spec.Replicas, 1), d.Status
	pods := fmt.Sprintf("kubectl --namespace %s describe pods --selector app.kubernetes.io/name=heirloom", d.Namespace)
	switch {
	case wanted == 0:
		return failed("%s has been scaled to 0 replicas.", name).
			next("Scale it up: kubectl --namespace %s scale deployment %s --replicas=2", d.Namespace, d.Name)
	case has.AvailableReplicas == 0:
		return failed("%s: none of %d replicas is available.", name, wanted).next("Look at its Pods: %s", pods)
	case has.AvailableReplicas < wanted:
		return warning("%s: %d of %d replicas are available.", name, has.AvailableReplicas, wanted).next("Look at its Pods: %s", pods)
	case has.UpdatedReplicas < wanted, has.ObservedGeneration < d.Generation:
		return warning("%s: an update is not finished, %d of %d replicas are new.", name, has.UpdatedReplicas, wanted).
			next("Wait for it: kubectl --namespace %s rollout status deployment %s", d.Namespace, d.Name)
	}
	leader, problem := w.leader(ctx, d.Namespace)
	if problem != nil {
		problem.Message = fmt.Sprintf("%s: %d of %d replicas are available. %s", name, has.AvailableReplicas, wanted, problem.Message)
		return *problem
	}
	return ok("%s: %d of %d replicas are available. %s", name, has.AvailableReplicas, wanted, leader)
}

// leader says who leads, or what is wrong.
func (w *world) leader(ctx context.Context, namespace string) (string, *Result) {
	known, err := w.settings()
	if err != nil {
		return "", ptr.To(unknown("Whether one leads is not known: %v", err))
	}
	if !known.Config.LeaderElect && known.Known {
		return "There is no leader election.", nil
	}
	const runbook = "docs/runbooks/HeirloomNotLeading.md"
	key := types.NamespacedName{Namespace: namespace, Name: known.Config.LeaderElectionID()}
	if known.Config.LeaderElectNamespace != "" {
		key.Namespace = known.Config.LeaderElectNamespace
	}
	lease := &coordinationv1.Lease{}
	switch err := w.Client.Get(ctx, key, lease); {
	case apierrors.IsNotFound(err):
		return "", ptr.To(failed("None has ever led: there is no Lease %s.", key).next("See %s.", runbook))
	case err != nil:
		return "", ptr.To(unknown("Whether one leads is not known: %v", err))
	}
	holder, renewed := ptr.Deref(lease.Spec.HolderIdentity, ""), lease.Spec.RenewTime
	valid := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second + skew
	switch {
	case holder == "":
		return "", ptr.To(failed("None of them leads: Lease %s has no holder.", key).next("See %s.", runbook))
	case renewed == nil || w.Now().Sub(renewed.Time) > valid:
		return "", ptr.To(failed("None of them leads: %s no longer renews Lease %s.", pod(holder), key).next("See %s.", runbook))
	}
	return pod(holder) + " leads.", nil
}

// pod is the part of a Lease's holder that names a Pod.
func pod(holder string) string {
	name, _, _ := strings.Cut(holder, "_")
	return name
}
