// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	// prober is the field manager of the dry runs.
	prober = "kubectl-heirloom-check"
	// reserved is a taint that the validating webhook refuses.
	reserved = "node.cluster.x-k8s.io/uninitialized:NoSchedule"
	// refuser is the name of the webhook that refuses it, and giver that of the one by which Machines inherit.
	refuser = "taints.heirloom.dev"
	giver   = "machines.heirloom.dev"

	notCalledPage = "docs/runbooks/HeirloomWebhooksNotCalled.md"
)

// mutation creates a Machine of an existing MachineSet, as a dry run, and looks for what it would inherit: a webhook that fails open
// says nothing when it fails.
func mutation(ctx context.Context, w *world) Result {
	machine, expected, err := w.heir(ctx)
	if err != nil {
		return unknown("No dry run could be made: %v", err)
	}
	if machine == nil {
		return unknown("No MachineSet in a namespace for which the webhook is called declares anything that a new Machine would inherit, " +
			"so that an answer would change nothing.").
			next("Declare a label in a MachineDeployment's template, and check again.")
	}
	owner := metav1.GetControllerOf(machine).Name
	err = w.Client.Create(ctx, machine, client.DryRunAll, client.FieldOwner(prober))
	switch {
	case uncalled(err):
		return failed("A Machine of MachineSet %s/%s could not be created (dry run): %v", machine.GetNamespace(), owner, err).next("See %s.", notCalledPage)
	case err != nil:
		return unknown("A Machine of MachineSet %s/%s could not be created in a dry run: %v", machine.GetNamespace(), owner, err)
	}
	for _, entry := range machine.GetManagedFields() {
		if managedfields.IsOurs(entry) {
			return ok("A Machine of MachineSet %s/%s would inherit %s (dry run).", machine.GetNamespace(), owner, expected)
		}
	}
	return failed("A Machine of MachineSet %s/%s should inherit %s, and did not (dry run): the webhook is not called, or does not answer.",
		machine.GetNamespace(), owner, expected).next("See %s.", notCalledPage)
}

// heir returns a Machine that is still to be created and will inherit something, and says what.
func (w *world) heir(ctx context.Context) (*unstructured.Unstructured, string, error) {
	known, err := w.settings()
	if err != nil {
		return nil, "", err
	}
	gvk, err := w.Client.GroupVersionKindFor(&clusterv1.MachineSet{})
	if err != nil {
		return nil, "", fmt.Errorf("finding the kind of MachineSets: %w", err)
	}
	sets := &unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(gvk.GroupVersion().WithKind("MachineSetList"))
	if err := w.Client.List(ctx, sets, client.InNamespace(known.Config.Namespace)); err != nil {
		return nil, "", fmt.Errorf("listing MachineSets: %w", err)
	}
	called := w.calls(mutatingKind, giver)
	for i := range sets.Items {
		machine := machineOf(&sets.Items[i])
		if machine == nil || !called.in(ctx, machine.GetNamespace()) {
			continue
		}
		expected, err := w.inherits(ctx, machine, known.Policy())
		if err != nil {
			return nil, "", err
		}
		if expected != "" {
			return machine, expected, nil
		}
	}
	return nil, "", nil
}

// machineOf returns a Machine as a MachineSet would create it, without what it inherits.
func machineOf(ms *unstructured.Unstructured) *unstructured.Unstructured {
	spec, found, err := unstructured.NestedMap(ms.Object, "spec", "template", "spec")
	if err != nil || !found || ms.GetDeletionTimestamp() != nil {
		return nil
	}
	delete(spec, "taints")
	machine := bareMachine(ms.GroupVersionKind().GroupVersion(), ms.GetNamespace(), spec)
	labels := map[string]string{clusterv1.ClusterNameLabel: fmt.Sprint(spec["clusterName"])}
	if filter := ms.GetLabels()[clusterv1.WatchLabel]; filter != "" {
		labels[clusterv1.WatchLabel] = filter
	}
	machine.SetLabels(labels)
	machine.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: ms.GetAPIVersion(), Kind: ms.GetKind(), Name: ms.GetName(), UID: ms.GetUID(), Controller: ptr.To(true),
	}})
	return machine
}

func bareMachine(version schema.GroupVersion, namespace string, spec map[string]any) *unstructured.Unstructured {
	machine := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	machine.SetGroupVersionKind(version.WithKind("Machine"))
	machine.SetNamespace(namespace)
	machine.SetGenerateName("heirloom-check-")
	return machine
}

// inherits names one thing that a Machine inherits, or "".
func (w *world) inherits(ctx context.Context, machine *unstructured.Unstructured, policy inherit.Policy) (string, error) {
	typed := &clusterv1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(machine.Object, typed); err != nil {
		return "", fmt.Errorf("reading a Machine: %w", err)
	}
	decided, err := owners.Machines.Evaluate(ctx, w.snapshot.Chain(), typed, policy)
	if err != nil || decided.Untouched() {
		return "", err
	}
	current, err := owners.Machines.Content(ctx, w.snapshot.Chain(), typed)
	if err != nil {
		return "", err
	}
	plan, err := managedfields.New(typed, current, decided.Decision, nil)
	if err != nil {
		return "", err
	}
	for _, change := range plan.Changes() {
		if change.Value != nil {
			return change.String(), nil
		}
	}
	return "", nil
}

// validation creates a Machine with a reserved taint, as a dry run, which must be refused.
func validation(ctx context.Context, w *world) Result {
	gvk, err := w.Client.GroupVersionKindFor(&clusterv1.Machine{})
	if err != nil {
		return unknown("The kind of Machines is not known: %v", err)
	}
	namespace := metav1.NamespaceDefault
	if known, err := w.settings(); err == nil {
		namespace = cmp.Or(known.Config.Namespace, namespace)
	}
	called := w.calls(validatingKind, refuser).namespace(ctx, namespace)
	if called == "" {
		return unknown("No dry run could be made: the webhook %s is not called for namespace %s, and no other one was found.", refuser, namespace).
			next("Ask for the right to list Namespaces, or look at the namespaceSelector of the webhook.")
	}
	machine := bareMachine(gvk.GroupVersion(), called, map[string]any{
		"clusterName":       "heirloom-check",
		"bootstrap":         map[string]any{"dataSecretName": "heirloom-check"},
		"infrastructureRef": map[string]any{"apiGroup": inherit.InfrastructureGroup, "kind": "HeirloomCheck", "name": "heirloom-check"},
	})
	machine.SetAnnotations(map[string]string{taint.AlwaysAnnotation: reserved})
	err = w.Client.Create(ctx, machine, client.DryRunAll, client.FieldOwner(prober))
	switch {
	case err == nil:
		const accepted = "A Machine with the reserved taint %s was accepted (dry run): the webhook %s is not called, or does not answer."
		return failed(accepted, reserved, refuser).next("See %s.", notCalledPage)
	case uncalled(err):
		return failed("A Machine with a reserved taint could not be judged (dry run): %v", err).next("See %s.", notCalledPage)
	case !(apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) || !strings.Contains(err.Error(), `admission webhook "`+refuser+`" denied the request`):
		return unknown("A Machine could not be created in a dry run: %v", err)
	}
	return ok("A Machine with the reserved taint %s is refused (dry run).", reserved)
}

// uncalled reports whether an API server refused a request because it could not call one of Heirloom's webhooks, which fails closed
// then. The error names the webhook, as that of a request that the webhook has refused.
func uncalled(err error) bool {
	if err == nil {
		return false
	}
	_, rest, found := strings.Cut(err.Error(), `failed calling webhook "`)
	name, _, _ := strings.Cut(rest, `"`)
	return found && strings.HasSuffix(name, ".heirloom.dev")
}
