// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/ownerchain"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// reader reads an object and its owners from the API server.
type reader struct {
	live  client.Reader
	chain ownerchain.Chain
	// management is the Cluster of the management cluster itself, where the user has said which that is.
	management types.NamespacedName
}

// newReader connects to the management cluster and finds out which version of Cluster API it serves.
func newReader(config *genericclioptions.ConfigFlags, warnings io.Writer) (*reader, error) {
	restConfig, err := config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	restConfig.UserAgent = "kubectl-heirloom/" + version.String()
	restConfig.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	mapper, err := config.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("discovering the API server's kinds: %w", err)
	}
	served, err := capi.Version(mapper)
	if err != nil {
		return nil, fmt.Errorf("looking for Cluster API at %s (--context or --kubeconfig chooses another cluster): %w", restConfig.Host, err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering Kubernetes' types: %w", err)
	}
	capi.AddToScheme(scheme, served)
	live, err := client.New(restConfig, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &reader{live: live, chain: ownerchain.Chain{Reader: live}}, nil
}

// family reads the object and everything above it.
func (r *reader) family(ctx context.Context, kind schema.GroupKind, key types.NamespacedName) (origin.Family, error) {
	var f origin.Family
	var err error
	switch kind {
	case schema.GroupKind{Kind: "Node"}:
		f.Node = &corev1.Node{}
		if err := r.get(ctx, kind.Kind, key, f.Node); err != nil {
			return f, err
		}
		if f.Machine, err = r.machineOf(ctx, f.Node); err != nil {
			return f, err
		}
	case clusterv1.GroupVersion.WithKind("Machine").GroupKind():
		f.Machine = &capi.Machine{}
		err = r.get(ctx, kind.Kind, key, f.Machine)
	case clusterv1.GroupVersion.WithKind("MachineSet").GroupKind():
		f.MachineSet = &capi.MachineSet{}
		err = r.get(ctx, kind.Kind, key, f.MachineSet)
	default:
		err = fmt.Errorf("cannot explain a %s: choose a machine, a machineset or a node; if another API group has the same name, write it like machines.%s",
			kind, clusterv1.GroupVersion.Group)
	}
	if err != nil {
		return f, err
	}
	return f, r.owners(ctx, &f)
}

func (r *reader) get(ctx context.Context, kind string, key types.NamespacedName, into client.Object) error {
	if err := r.live.Get(ctx, key, into); err != nil {
		return fmt.Errorf("getting %s %s: %w", kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	return nil
}

// owners reads what is above the Machine or MachineSet of the family.
func (r *reader) owners(ctx context.Context, f *origin.Family) error {
	var err error
	if f.Machine != nil {
		if f.MachineSet, err = r.chain.MachineSet(ctx, f.Machine); err != nil {
			return err
		}
		if f.Cluster, err = r.chain.Cluster(ctx, f.Machine.Namespace, f.Machine.Spec.ClusterName); err != nil {
			return err
		}
	}
	if f.MachineSet == nil {
		return nil
	}
	if f.MachineDeployment, err = r.chain.MachineDeployment(ctx, f.MachineSet); err != nil || f.Cluster != nil {
		return err
	}
	f.Cluster, err = r.chain.Cluster(ctx, f.MachineSet.Namespace, f.MachineSet.Spec.ClusterName)
	return err
}

// machineOf returns the Machine that the Node is. The API server has no index to ask, so all Machines are read.
func (r *reader) machineOf(ctx context.Context, node *corev1.Node) (*capi.Machine, error) {
	var options []client.ListOption
	management := r.management
	if management.Name != "" {
		options = append(options, client.InNamespace(management.Namespace))
	}
	list := &capi.MachineList{}
	if err := r.live.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing the Machines, of which one may be the Node: %w", err)
	}
	candidates := list.Items
	if management.Name != "" {
		candidates = ofCluster(candidates, management.Name)
	}
	if m := inherit.Match(node, candidates, management.Name != ""); m != nil {
		return m, nil
	}
	return nil, noMachine(node, len(candidates), management)
}

func ofCluster(machines []capi.Machine, name string) []capi.Machine {
	var own []capi.Machine
	for _, m := range machines {
		if m.Spec.ClusterName == name {
			own = append(own, m)
		}
	}
	return own
}

// noMachine says why a Node has no Machine and what can be done about it.
func noMachine(node *corev1.Node, candidates int, management types.NamespacedName) error {
	if management.Name != "" {
		return fmt.Errorf("no Machine, or more than one, of the %d of Cluster %s matches Node %s by status.nodeRef, spec.providerID or address: "+
			"compare them (kubectl get machines -n %s -o wide) with the Node, whose spec.providerID is %q",
			candidates, management, node.Name, management.Namespace, node.Spec.ProviderID)
	}
	return fmt.Errorf("no Machine, or more than one, of the %d in all namespaces has the spec.providerID of Node %s, %q: "+
		"if the Node belongs to a management cluster that manages itself, pass --management-cluster=<namespace>/<name>, so that names and addresses count too",
		candidates, node.Name, node.Spec.ProviderID)
}
