// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
)

// node explains a Node of the management cluster. What the operator's own regexes select for it, which are not known here, is read
// from what was recorded there.
func (x *Explainer) node(ctx context.Context, node *corev1.Node) (*Explanation, error) {
	chain, err := x.chainOf(ctx, node)
	if err != nil {
		return nil, err
	}
	policy := inherit.Policy{
		ClusterAPITaints:      inherit.PropagationEnabled,
		AdditionalLabels:      recorded(node, clusterv1.LabelsFromMachineAnnotation, inherit.LabelsFromMachineAnnotation),
		AdditionalAnnotations: recorded(node, clusterv1.AnnotationsFromMachineAnnotation, inherit.AnnotationsFromMachineAnnotation),
	}
	decided, err := chain.EvaluateNode(ctx, node, policy)
	why := decided.Reason
	if err == nil && decided.Outcome == inherit.Skipped {
		kept := node.DeepCopy()
		kept.DeletionTimestamp, policy.SkipNothing = nil, true
		decided, err = chain.EvaluateNode(ctx, kept, policy)
	}
	switch {
	case err != nil:
		return nil, err
	case decided.Outcome == inherit.NoOwner:
		return nil, x.noMachine(node)
	}
	var notes []string
	if why != "" {
		if !inherit.Deleting(node) && decided.Inherits() {
			why = "of " + inherit.Reason(decided.Source.String()) + ": " + why
		}
		notes = append(notes, leftAlone(why))
	}
	name := "Node " + node.Name
	top := place{paths: capi.Paths{Metadata: []string{"metadata"}, Taints: []string{"spec", "taints"}}, has: contentOfNode(inherit.OfNode(node)), atomicTaints: true}
	if !decided.Inherits() {
		return explanation(node, name, notes, top)
	}
	from := decided.Source
	state, problems := policy.Node(from, inherit.NodeState{}, inherit.Privileged)
	sources := chain.NodeSources(ctx, from)
	top.desired, top.from = contentOfNode(state), func(e inherit.Entry) (string, bool) { return nodeSource(from, sources, e) }
	notes = append(notes, unread(sources)...)
	notes = append(notes, leftOut(sources, problems)...)
	notes = append(notes, whereToEdit(inherit.Ref{}, sources)...)
	return explanation(node, name, notes, top)
}

// nodeSource says where what a Node inherits is declared. Beside what its Machine has, the rules record there what came from it.
func nodeSource(from inherit.NodeSource, sources inherit.Sources, e inherit.Entry) (string, bool) {
	_, label := from.Labels[e.Name]
	_, annotation := from.Annotations[e.Name]
	if e.What == string(Label) && !label || e.What == string(Annotation) && !annotation {
		return "records what came from " + from.String(), false
	}
	return describe(sources.Of(e)), true
}

// recorded returns regexes for exactly the keys that tracking annotations list.
func recorded(node *corev1.Node, annotations ...string) []*regexp.Regexp {
	var exact []*regexp.Regexp
	for _, name := range annotations {
		for key := range strings.SplitSeq(node.Annotations[name], ",") {
			if key = strings.TrimSpace(key); key != "" {
				exact = append(exact, regexp.MustCompile("^"+regexp.QuoteMeta(key)+"$"))
			}
		}
	}
	return exact
}

// chainOf returns a chain for the Cluster of a Node. Unless the user has named it, it is the only one with the Node's providerID.
func (x *Explainer) chainOf(ctx context.Context, node *corev1.Node) (*ownerchain.Chain, error) {
	if x.ManagementCluster.Name != "" {
		return x.chain.Within(x.ManagementCluster), nil
	}
	clusters := sets.New[types.NamespacedName]()
	if err := x.chain.ClustersWith(ctx, node.Spec.ProviderID, clusters); err != nil {
		return nil, fmt.Errorf("finding the Machine that is the Node: %w", err)
	}
	if clusters.Len() != 1 {
		return nil, x.noMachine(node)
	}
	cluster, _ := clusters.PopAny()
	return x.chain.Within(cluster), nil
}

// noMachine says why a Node has no Machine and what can be done about it.
func (x *Explainer) noMachine(node *corev1.Node) error {
	if management := x.ManagementCluster; management.Name != "" {
		return fmt.Errorf("no Machine or MachinePool, or more than one, of Cluster %s matches Node %s by status.nodeRef, spec.providerID or address: "+
			"compare them (kubectl get machines -n %s -o wide) with the Node, whose spec.providerID is %q",
			management, node.Name, management.Namespace, node.Spec.ProviderID)
	}
	return fmt.Errorf("no Machine or MachinePool, or more than one, has the spec.providerID of Node %s, %q: "+
		"if the Node belongs to a management cluster that manages itself, pass --management-cluster=<namespace>/<name>, so that names and addresses count too",
		node.Name, node.Spec.ProviderID)
}
