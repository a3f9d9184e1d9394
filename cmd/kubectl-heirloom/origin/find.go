// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long a workload cluster may take to answer.
const patience = 10 * time.Second

// errNoMachine means that a Node belongs to no Machine, or may belong to several.
var errNoMachine = errors.New("no Machine or MachinePool, or more than one, matches")

// findNode explains the Node of that name: of the Cluster that the user has named; of the management cluster, if that has it and is
// itself a Cluster; or of the Cluster with a Machine that names it.
func (x *Explainer) findNode(ctx context.Context, name string) (*Explanation, error) {
	if x.Cluster.Name != "" {
		return x.nodeOf(ctx, x.Cluster, name)
	}
	node, err := x.nodeOfManagement(ctx, name)
	if err != nil {
		return nil, err
	}
	if node != nil && x.selfHosted() {
		return x.nodeIn(ctx, x.management(), node)
	}
	clusters, err := x.clustersNaming(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case len(clusters) > 1:
		return nil, fmt.Errorf("several Clusters have a Machine whose Node is %s: %s; name one with --workload-cluster=<namespace>/<name>, "+
			"or its namespace with -n", name, join(clusters))
	case len(clusters) == 1 && (x.Nodes != nil || node == nil):
		e, err := x.nodeOf(ctx, clusters[0], name)
		if err != nil && node != nil {
			err = fmt.Errorf("%w; the management cluster has a Node of this name too: if you mean that one, pass --management-cluster=%s",
				err, clusters[0])
		}
		return e, err
	case node != nil:
		return nil, fmt.Errorf("the Node %s is in the management cluster, whose Nodes inherit nothing, because the server has no --management-cluster; "+
			"if the management cluster manages itself, pass --management-cluster=<namespace>/<name> to see what the Node would inherit", name)
	}
	return nil, fmt.Errorf("there is no Node %s: not in the management cluster, and no Machine%s names it in status.nodeRef; "+
		"if it belongs to no Machine yet, name its Cluster with --workload-cluster=<namespace>/<name>", name, x.inNamespace())
}

func (x *Explainer) inNamespace() string {
	if x.Namespace == "" {
		return ""
	}
	return " in namespace " + x.Namespace
}

// nodeOfManagement returns a Node of the management cluster's own API server, or nil.
func (x *Explainer) nodeOfManagement(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := x.reader.Get(ctx, types.NamespacedName{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && !x.selfHosted():
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting Node %s: %w", name, err)
	}
	return node, nil
}

// selfHosted reports whether the management cluster is known to be a Cluster itself.
func (x *Explainer) selfHosted() bool { return x.management().Name != "" }

func (x *Explainer) management() types.NamespacedName { return x.settings.Config.ManagementClusterKey }

// clustersNaming returns the Clusters with a Machine, or a MachinePool, that says that this is its Node.
func (x *Explainer) clustersNaming(ctx context.Context, name string) ([]types.NamespacedName, error) {
	found := sets.New[types.NamespacedName]()
	machines, pools := &clusterv1.MachineList{}, &clusterv1.MachinePoolList{}
	if err := x.reader.List(ctx, machines, client.InNamespace(x.Namespace)); err != nil {
		return nil, fmt.Errorf("looking for the Machine of Node %s: %w", name, err)
	}
	for _, m := range machines.Items {
		if m.Status.NodeRef.Name == name {
			found.Insert(types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName})
		}
	}
	if err := x.reader.List(ctx, pools, client.InNamespace(x.Namespace)); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("looking for the MachinePool of Node %s: %w", name, err)
	}
	for _, mp := range pools.Items {
		if slices.ContainsFunc(mp.Status.NodeRefs, func(ref corev1.ObjectReference) bool { return ref.Name == name }) {
			found.Insert(types.NamespacedName{Namespace: mp.Namespace, Name: mp.Spec.ClusterName})
		}
	}
	clusters := found.UnsortedList()
	slices.SortFunc(clusters, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return clusters, nil
}

func join(clusters []types.NamespacedName) string {
	names := make([]string, 0, len(clusters))
	for _, c := range clusters {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

// nodeOf explains a Node of a Cluster that is known.
func (x *Explainer) nodeOf(ctx context.Context, cluster types.NamespacedName, name string) (*Explanation, error) {
	nodes, err := x.nodesOf(ctx, cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	node := &corev1.Node{}
	if err := nodes.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil, unanswered(cluster, err)
	}
	return x.nodeIn(ctx, cluster, node)
}

// nodesOf returns a reader of the Nodes of a Cluster.
func (x *Explainer) nodesOf(ctx context.Context, cluster types.NamespacedName) (client.Reader, error) {
	if x.selfHosted() && cluster == x.management() {
		return x.reader, nil
	}
	if x.Nodes == nil {
		return nil, fmt.Errorf("the Nodes of Cluster %s are not in the management cluster", cluster)
	}
	nodes, err := x.Nodes(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("connecting to the workload cluster of Cluster %s: %w; --workload-kubeconfig names another kubeconfig", cluster, err)
	}
	return nodes, nil
}

// unanswered says what a workload cluster answered instead of what was asked for.
func unanswered(cluster types.NamespacedName, err error) error {
	if errors.As(err, new(apierrors.APIStatus)) {
		return fmt.Errorf("the workload cluster of Cluster %s: %w", cluster, err)
	}
	return fmt.Errorf("the workload cluster of Cluster %s does not answer: %w; --workload-kubeconfig names another kubeconfig", cluster, err)
}

func (x *Explainer) nodeIn(ctx context.Context, cluster types.NamespacedName, node *corev1.Node) (*Explanation, error) {
	e, err := x.node(ctx, x.chain.Within(cluster), node)
	if errors.Is(err, errNoMachine) {
		return nil, noMachine(cluster, node)
	}
	return e, err
}

// NodeNames returns the names of the Nodes with these labels: of the Cluster that the user has named, or of the management cluster
// if that is a Cluster itself.
func (x *Explainer) NodeNames(ctx context.Context, selector labels.Selector) ([]string, error) {
	cluster := x.Cluster
	if cluster.Name == "" {
		cluster = x.management()
	}
	if cluster.Name == "" {
		return nil, errors.New("name the Cluster whose Nodes you mean with --workload-cluster=<namespace>/<name>")
	}
	nodes, err := x.nodesOf(ctx, cluster)
	if err != nil {
		return nil, err
	}
	list := &corev1.NodeList{}
	if err := nodes.List(ctx, list); err != nil {
		return nil, unanswered(cluster, err)
	}
	var names []string
	for i := range list.Items {
		if selector.Matches(labels.Set(list.Items[i].Labels)) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// noMachine says why a Node has no Machine and what can be done about it.
func noMachine(cluster types.NamespacedName, node *corev1.Node) error {
	return fmt.Errorf("no Machine or MachinePool, or more than one, of Cluster %s matches Node %s by status.nodeRef, spec.providerID or address: "+
		"compare them (kubectl get machines -n %s -o wide) with the Node, whose spec.providerID is %q",
		cluster, node.Name, cluster.Namespace, node.Spec.ProviderID)
}
