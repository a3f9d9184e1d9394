// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

const (
	// giver is the webhook by which Machines inherit, refuser the webhook that refuses reserved taints, such as reserved.
	giver    = "machines.heirloom.dev"
	refuser  = "taints.heirloom.dev"
	reserved = "node.cluster.x-k8s.io/uninitialized:NoSchedule"
	prober   = client.FieldOwner("kubectl-heirloom-check")
)

func (c *Checker) readTrees(ctx context.Context) ([]*compare.Tree, error) {
	var all []types.NamespacedName
	var errs []error
	for _, namespace := range c.Settings.Config.Watched() {
		clusters, err := c.Clusters(ctx, namespace)
		all, errs = append(all, clusters...), append(errs, err)
	}
	return c.Trees(ctx, all), errors.Join(errs...)
}

// each calls a function for each object of the Clusters that could be read, and adds the other Clusters to the findings.
func (c *Checker) each(r *answer, do func(*compare.Tree, *compare.Object)) {
	for _, t := range c.trees {
		if t.Err != nil {
			r.add(Unknown, "", "Cluster %s could not be read: %v", t.Cluster, t.Err)
			continue
		}
		t.Each(func(o *compare.Object) { do(t, o) })
	}
}

// mode lists the Clusters that Heirloom does not write. A label that asks for writes has no effect if the installation only observes.
func (c *Checker) mode(ctx context.Context) answer {
	r, enforced := result(OK, ""), 0
	c.each(&r, func(of *compare.Tree, o *compare.Object) {
		cluster, ok := o.Object.(*clusterv1.Cluster)
		if !ok {
			return
		}
		switch observed, enrolled := c.observes(ctx, cluster); {
		case !enrolled:
			r.add(OK, of.Cluster.String(), "not enrolled")
		case observed && cluster.Labels[inherit.ModeLabel] == string(inherit.Enforce):
			r.add(Warning, of.Cluster.String(), "observing: its label %s=%s has no effect with --mode=%s", inherit.ModeLabel, inherit.Enforce, inherit.Observe)
		case observed:
			r.add(OK, of.Cluster.String(), "observing")
		default:
			enforced++
		}
	})
	r.Message = fmt.Sprintf("%s (--mode=%s, --enrollment=%s).", share(enforced, len(c.trees), "Cluster", "is enforced", "are enforced"), c.Settings.Config.Mode, c.Settings.Config.Enrollment)
	return r
}

// observes reports whether Heirloom only observes a Cluster, and whether the Cluster is enrolled; nil stands for a Cluster that does not
// exist.
func (c *Checker) observes(ctx context.Context, cluster *clusterv1.Cluster) (observed, enrolled bool) {
	_, observed, enrolled, _ = c.Store.Chain(types.NamespacedName{}).Observes(ctx, cluster, c.Settings.Policy())
	return observed, enrolled
}

// enforced returns the Clusters in which a dry run shows the answers of the webhooks, or why there is none. The first may be a Cluster that
// does not exist.
func (c *Checker) enforced(ctx context.Context) (all []types.NamespacedName, none answer) {
	observed, enrolled := c.observes(ctx, nil)
	if enrolled && !observed {
		all = append(all, types.NamespacedName{Namespace: cmp.Or(c.Settings.Config.Watched()[0], metav1.NamespaceDefault), Name: "heirloom-check"})
	}
	none = result(Skipped, "No Cluster is enrolled: label a Cluster with %s=%s.", inherit.ModeLabel, inherit.Observe)
	for _, of := range c.trees {
		cluster, _ := of.Object.Object.(*clusterv1.Cluster)
		ofCluster, itself := c.observes(ctx, cluster)
		observed, enrolled = observed || ofCluster, enrolled || itself
		if cluster != nil && itself && !ofCluster {
			all = append(all, of.Cluster)
		}
	}
	if enrolled {
		none = result(OK, "observing: Heirloom changes and refuses nothing, so a dry run would show nothing.")
	}
	return all, none
}

func (c *Checker) workloadClusters(context.Context) answer {
	r, reached := result(Skipped, ""), 0
	c.each(&r, func(of *compare.Tree, o *compare.Object) {
		switch {
		case o.Kind != "Cluster":
		case of.NoNodesYet:
			r.add(OK, of.Cluster.String(), "no API server yet")
		case of.NodesErr == nil:
			reached++
			r.raise(OK)
		case errors.Is(of.NodesErr, cli.ErrSkipped):
			r.add(OK, of.Cluster.String(), "skipped (--workload-clusters=false)")
		default:
			r.add(Warning, "", "%s: %v", of.Cluster, of.NodesErr)
		}
	})
	r.Message = share(reached, len(c.trees), "workload cluster", "could", "could") + " be reached from here."
	return r
}

func (c *Checker) nodes(context.Context) answer {
	r, total, well := result(Skipped, ""), 0, 0
	c.each(&r, func(of *compare.Tree, o *compare.Object) {
		if o.Kind == "Cluster" && of.NodesErr != nil && !errors.Is(of.NodesErr, cli.ErrSkipped) {
			r.add(Unknown, of.Cluster.String(), "not reached")
		}
		if o.Node == nil {
			return
		}
		name := o.Object.GetName()
		wrong := slices.DeleteFunc(o.Wrong(), func(e compare.Entry) bool { return e.Waits() })
		switch {
		case o.Err != nil:
			r.add(Unknown, name, "%s: %v", of.Cluster, o.Err)
		case slices.Contains(of.Strangers, o):
			r.add(Warning, name, "%s: no Machine matches (Node and Machine need the same spec.providerID)", of.Cluster)
		case !o.Node.Decided.Inherits():
			return
		case len(wrong) == 0:
			well++
			r.raise(OK)
		case inherit.ReadNode(o.Node.Node, c.Now).Registering():
			r.add(OK, name, "%s: still registering", of.Cluster)
		case o.Observed():
			r.add(OK, name, "%s: observing: would be written", of.Cluster)
		default:
			for _, e := range wrong {
				r.add(Failed, name, "%s: %s %q %s", of.Cluster, e.Kind, e.Key, e.Status.Phrase())
			}
		}
		if len(o.Node.Plan.Held) > 0 {
			r.add(OK, name, "%s: a NoExecute taint waits for its turn", of.Cluster)
		}
		total++
	})
	r.Message = share(well, total, "Node", "is", "are") + " as declared."
	return r
}

// machines finds Machines that inherit nothing. A Machine that is being deleted, or whose Cluster is not enrolled, is no finding.
func (c *Checker) machines(context.Context) answer {
	r, total, well := result(Skipped, ""), 0, 0
	c.each(&r, func(of *compare.Tree, o *compare.Object) {
		switch {
		case o.Kind != "Machine", o.Decided.Reason == inherit.ClusterIsNotEnrolled:
			return
		case o.Err != nil:
			r.add(Warning, o.Object.GetName(), "%s: %v", of.Cluster, o.Err)
		case o.Decided.Untouched() && o.Decided.Reason != inherit.IsDeleted:
			r.add(Warning, o.Object.GetName(), "%s: %s", of.Cluster, o.Decided.Reason)
		default:
			well++
			r.raise(OK)
		}
		total++
	})
	r.Message = share(well, total, "Machine", "inherits", "inherit") + "."
	return r
}

// others finds programs that may undo Heirloom's writes: other Heirlooms that handle the same objects, and field managers, other than
// Heirloom's and Cluster API's, that own entries which differ.
func (c *Checker) others(context.Context) answer {
	r := result(OK, "No other field manager owns inherited entries.")
	for i := range c.deployments {
		if d := &c.deployments[i]; len(c.deployments) > 1 && settings.HandlesAll(d) {
			r.add(Warning, d.Namespace+"/"+d.Name, "also handles the objects of other Heirlooms: it has neither --namespace nor --watch-filter")
		}
	}
	c.each(&r, func(of *compare.Tree, o *compare.Object) {
		for _, e := range o.Wrong() {
			if e.Declared == nil || e.WholeList || o.Skipped != "" {
				continue
			}
			for _, manager := range e.Others() {
				r.add(Warning, fmt.Sprintf("%s %s (%s %q)", o.Kind, o.Object.GetName(), e.Kind, e.Key), "%s: field manager %s owns the value that differs", of.Cluster, manager)
			}
		}
	})
	if r.Status == Warning {
		r.Message = "Others may change inherited entries."
	}
	return r
}

// mutation creates a Machine of an existing MachineSet, as a dry run, and looks for an inherited entry: a webhook that fails open is silent
// when it fails.
func (c *Checker) mutation(ctx context.Context) answer {
	if in, none := c.enforced(ctx); len(in) == 0 {
		return none
	}
	var all []clusterv1.MachineSet
	for _, namespace := range c.Settings.Config.Watched() {
		sets := &clusterv1.MachineSetList{}
		if err := c.Store.List(ctx, sets, client.InNamespace(namespace)); err != nil { // the trees have read them already
			return result(Unknown, "This could not be checked: %v", err)
		}
		all = append(all, sets.Items...)
	}
	for i := range all {
		machine, what := machineOf(&all[i]), fmt.Sprintf("A Machine of MachineSet %s/%s", all[i].Namespace, all[i].Name)
		o := c.Of(ctx, inherit.Ref{Kind: "Machine", Object: machine.DeepCopy()}, clusterv1.GroupVersion.WithKind("Machine"))
		missing := slices.IndexFunc(o.Entries, func(e compare.Entry) bool { return e.Status == compare.Missing })
		if missing < 0 || o.Skipped != "" || o.Observed() || all[i].DeletionTimestamp != nil || !c.called(ctx, giver, machine) {
			continue
		}
		e := o.Entries[missing]
		if err := c.Client.Create(ctx, machine, client.DryRunAll, prober); err != nil {
			return uncreated(what, err)
		}
		if !slices.ContainsFunc(machine.ManagedFields, managedfields.IsOurs) {
			return result(Failed, "%s should inherit %s %q but did not (dry run): the webhook is not called, or does not answer.", what, e.Kind, e.Key)
		}
		return result(OK, "%s would inherit %s %q (dry run).", what, e.Kind, e.Key)
	}
	return result(Unknown, "Found no MachineSet that declares an entry for new Machines and for which the webhook is called: "+
		"declare a label in a MachineDeployment's template, and check again.")
}

// machineOf returns a Machine as a MachineSet would create it, without its inherited entries.
func machineOf(ms *clusterv1.MachineSet) *clusterv1.Machine {
	owner := metav1.NewControllerRef(ms, clusterv1.GroupVersion.WithKind("MachineSet"))
	owner.BlockOwnerDeletion = nil // it needs another right
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ms.Namespace, GenerateName: "heirloom-check-", OwnerReferences: []metav1.OwnerReference{*owner},
			Labels: map[string]string{clusterv1.ClusterNameLabel: ms.Spec.ClusterName, clusterv1.WatchLabel: ms.Labels[clusterv1.WatchLabel]},
		},
		Spec: *ms.Spec.Template.Spec.DeepCopy(),
	}
	machine.Spec.Taints = nil
	return machine
}

// validation creates a Machine with a reserved taint, as a dry run, which must be refused.
func (c *Checker) validation(ctx context.Context) answer {
	in, none := c.enforced(ctx)
	if len(in) == 0 {
		return none
	}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "heirloom-check-", Annotations: map[string]string{taint.AlwaysAnnotation: reserved}},
		Spec: clusterv1.MachineSpec{
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("heirloom-check")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: "HeirloomCheck", Name: "heirloom-check"},
		},
	}
	const what = "A Machine with the reserved taint " + reserved
	called := slices.ContainsFunc(in, func(cluster types.NamespacedName) bool {
		machine.Namespace, machine.Spec.ClusterName = cluster.Namespace, cluster.Name
		return c.called(ctx, refuser, machine)
	})
	if !called {
		return result(Unknown, "The webhook %s is not called for any namespace with an enforced Cluster: check its namespaceSelector.", refuser)
	}
	switch err := c.Client.Create(ctx, machine, client.DryRunAll, prober); {
	case err == nil:
		return result(Failed, "%s was accepted (dry run): the webhook %s is not called, or does not answer.", what, refuser)
	case (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && strings.Contains(err.Error(), `admission webhook "`+refuser+`" denied the request`):
		return result(OK, "%s was rejected (dry run).", what)
	default:
		return uncreated(what, err)
	}
}

// uncreated returns the answer if a Machine could not be created: Failed if the API server could not call a webhook of Heirloom, which then
// fails closed, and Unknown otherwise.
func uncreated(what string, err error) answer {
	status := Unknown
	_, rest, _ := strings.Cut(err.Error(), `failed calling webhook "`)
	if name, _, _ := strings.Cut(rest, `"`); slices.Contains(Webhooks, name) {
		status = Failed
	}
	return result(status, "%s could not be created (dry run): %v", what, err)
}

// called reports whether an API server calls a webhook for an object: an operator may exclude objects by their labels, or by the labels of
// their namespace. A webhook that is not registered counts as called, so that a dry run shows the result.
func (c *Checker) called(ctx context.Context, webhook string, object client.Object) bool {
	i := slices.IndexFunc(c.hooks, func(h hook) bool { return h.Name == webhook })
	if i < 0 {
		return true
	}
	namespace := &corev1.Namespace{}
	_ = c.Client.Get(ctx, types.NamespacedName{Name: object.GetNamespace()}, namespace) // if it cannot be read, its name is still known
	ofNamespace := labels.Merge(namespace.Labels, labels.Set{corev1.LabelMetadataName: object.GetNamespace()})
	return selects(c.hooks[i].NamespaceSelector, ofNamespace) && selects(c.hooks[i].ObjectSelector, object.GetLabels())
}

func selects(by *metav1.LabelSelector, of labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(by)
	return by == nil || err != nil || selector.Matches(of)
}

// share says of how many objects something is true, with the verb for one object and for several.
func share(n, total int, noun, one, several string) string {
	verb := several
	if n == 1 || total == 1 {
		verb = one
	}
	return fmt.Sprintf("%d of %s %s", n, cli.Count(total, noun), verb)
}
