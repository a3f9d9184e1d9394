// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/target"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	// patience is how long completion waits for an API server, at most; in kubectl's syntax.
	patience = "3s"
	// mostCompletions is how many objects are read for one completion.
	mostCompletions = 500
)

// CompleteObjects completes TYPE/NAME or TYPE NAME. Without kinds, TYPE is any kind of an owner chain.
func (f *Factory) CompleteObjects(kinds ...string) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		f.hurry()
		kind, _, named := strings.Cut(toComplete, "/")
		switch {
		case len(args) == 1 && !strings.Contains(args[0], "/"):
			return startingWith(toComplete, f.names(command.Context(), args[0])), cobra.ShellCompDirectiveNoFileComp
		case len(args) > 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case !named && len(kinds) != 1:
			return startingWith(toComplete, f.kinds(command.Context(), kinds)), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		case !named:
			kind = kinds[0]
		}
		names := f.names(command.Context(), kind)
		for i := range names {
			names[i] = kind + "/" + names[i]
		}
		return startingWith(toComplete, names), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteClusters completes cluster/NAME.
func (f *Factory) CompleteClusters(command *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return f.CompleteObjects("cluster")(command, args, toComplete)
}

// CompleteClusterKeys completes the <namespace>/<name> of a Cluster.
func (f *Factory) CompleteClusterKeys(command *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	f.hurry()
	var keys []string
	for _, cluster := range f.list(command.Context(), "clusters."+clusterv1.GroupVersion.Group, metav1.NamespaceAll) {
		keys = append(keys, cluster.GetNamespace()+"/"+cluster.GetName())
	}
	return startingWith(toComplete, keys), cobra.ShellCompDirectiveNoFileComp
}

// CompleteNamespaces completes a namespace.
func (f *Factory) CompleteNamespaces(command *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	f.hurry()
	return startingWith(toComplete, f.names(command.Context(), "namespaces")), cobra.ShellCompDirectiveNoFileComp
}

// CompleteContexts completes a context of the kubeconfig.
func (f *Factory) CompleteContexts(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return f.inKubeconfig(toComplete, func(config api.Config) []string { return slices.Collect(maps.Keys(config.Contexts)) })
}

// CompleteKubeconfigClusters completes a cluster of the kubeconfig.
func (f *Factory) CompleteKubeconfigClusters(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return f.inKubeconfig(toComplete, func(config api.Config) []string { return slices.Collect(maps.Keys(config.Clusters)) })
}

// CompleteUsers completes a user of the kubeconfig.
func (f *Factory) CompleteUsers(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return f.inKubeconfig(toComplete, func(config api.Config) []string { return slices.Collect(maps.Keys(config.AuthInfos)) })
}

func (f *Factory) inKubeconfig(toComplete string, of func(api.Config) []string) ([]string, cobra.ShellCompDirective) {
	config, err := f.Config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return startingWith(toComplete, of(config)), cobra.ShellCompDirectiveNoFileComp
}

func startingWith(prefix string, all []string) []string {
	all = slices.DeleteFunc(all, func(one string) bool { return !strings.HasPrefix(one, prefix) })
	slices.Sort(all)
	return slices.Compact(all)
}

// hurry bounds the time for an API server, unless the user has.
func (f *Factory) hurry() {
	if f.Config.Timeout != nil && *f.Config.Timeout == "0" {
		*f.Config.Timeout = patience
	}
}

// kinds returns these kinds, or all of an owner chain that the API server serves, each with a slash.
func (f *Factory) kinds(ctx context.Context, kinds []string) []string {
	if len(kinds) == 0 {
		kinds = append([]string{"machine", "machinedeployment", "machinepool", "machineset", "node"}, f.providerKinds(ctx)...)
	}
	with := make([]string, 0, len(kinds))
	for _, kind := range kinds {
		with = append(with, kind+"/")
	}
	return with
}

// providerKinds are control planes, InfraMachines and BootstrapConfigs, and what else is in the API groups of providers.
func (f *Factory) providerKinds(ctx context.Context) []string {
	discovery, err := f.Config.ToDiscoveryClient()
	if err != nil {
		return nil
	}
	lists, _ := discovery.ServerPreferredResources() // some groups may not answer: the others are of use
	if len(lists) == 0 {
		return nil
	}
	groups := append(f.providerGroups(ctx), inherit.ControlPlaneGroup)
	var kinds []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || !slices.Contains(groups, version.Group) {
			continue
		}
		for _, resource := range list.APIResources {
			if !strings.HasSuffix(resource.Kind, "Template") && slices.Contains(resource.Verbs, "list") {
				kinds = append(kinds, strings.ToLower(resource.Kind))
			}
		}
	}
	return kinds
}

// providerGroups are the API groups of InfraMachines and BootstrapConfigs that the server knows, or those that each server does.
func (f *Factory) providerGroups(ctx context.Context) []string {
	usual := []string{inherit.InfrastructureGroup, inherit.BootstrapGroup}
	management, err := f.Management()
	if err != nil {
		return usual
	}
	read, err := f.Settings.Read(ctx, management)
	if err != nil {
		return usual
	}
	return slices.Clone(read.Config.ProviderGroups)
}

// names returns the names of the objects of a kind in the namespace. Nodes are those that Machines name: most are in workload clusters.
func (f *Factory) names(ctx context.Context, kind string) []string {
	namespace, err := f.Namespace()
	if err != nil {
		return nil
	}
	field := []string{"metadata", "name"}
	if slices.Contains([]string{"node", "nodes", "no"}, kind) {
		kind, field = "machines."+clusterv1.GroupVersion.Group, []string{"status", "nodeRef", "name"}
	}
	var names []string
	for _, object := range f.list(ctx, kind, namespace) {
		if name, _, _ := unstructured.NestedString(object.Object, field...); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// list returns objects of a kind as the user has typed it, and none if there is an error: a completion is no place to report one.
func (f *Factory) list(ctx context.Context, kind, namespace string) []unstructured.Unstructured {
	mapper, err := f.Config.ToRESTMapper()
	if err != nil {
		return nil
	}
	mapping, err := target.Kind(mapper, kind)
	if err != nil {
		return nil
	}
	config, err := f.Config.ToRESTConfig()
	if err != nil {
		return nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil
	}
	var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = client.Resource(mapping.Resource).Namespace(namespace)
	}
	found, err := resource.List(ctx, metav1.ListOptions{Limit: mostCompletions})
	if err != nil {
		return nil
	}
	return found.Items
}
