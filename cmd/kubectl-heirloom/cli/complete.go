// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Complete completes the arguments of a command, as ParseArguments reads them: kinds, names and, after an object, its keys.
func (f *Factory) Complete(takes Takes) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		kind, _, slash := strings.Cut(toComplete, "/")
		named, _ := ParseArguments(args, Takes{})
		switch {
		case takes.Clusters && !slash:
			return offer(toComplete, "", f.names("cluster"))
		case named.All != "":
			return offer(toComplete, "", f.names(named.All))
		case len(named.Objects) > 0 && takes.Key:
			return offer(toComplete, "", f.keys(named.Objects[0]))
		case slash && (!takes.Clusters || isCluster(kind)):
			return offer(toComplete, kind+"/", f.names(kind))
		case len(args) == 0 && !takes.Clusters:
			offered, directive := offer(toComplete, "", f.kinds())
			return offered, directive | cobra.ShellCompDirectiveNoSpace
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteLabel completes the label of a Node, by the labels of Machines, and then names of Clusters.
func (f *Factory) CompleteLabel(command *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return f.Complete(Takes{Clusters: true})(command, args[1:], toComplete)
	}
	var keys []string
	for _, machine := range f.list("machines") {
		keys = slices.AppendSeq(keys, maps.Keys(machine.GetLabels()))
	}
	return offer(toComplete, "", keys)
}

// CompleteFlag completes the value of a flag that kubectl also has, or of a flag for the <namespace>/<name> of a Cluster.
func (f *Factory) CompleteFlag(name string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		config, _ := f.Config.ToRawKubeConfigLoader().RawConfig() // empty if it cannot be read
		switch name {
		case "context":
			return offer(toComplete, "", slices.Collect(maps.Keys(config.Contexts)))
		case "cluster":
			return offer(toComplete, "", slices.Collect(maps.Keys(config.Clusters)))
		case "user":
			return offer(toComplete, "", slices.Collect(maps.Keys(config.AuthInfos)))
		case "namespace":
			return offer(toComplete, "", f.names("namespaces"))
		}
		namespace, _ := f.Namespace()
		return offer(toComplete, namespace+"/", f.names("cluster"))
	}
}

func offer(toComplete, before string, values []string) (offered []string, _ cobra.ShellCompDirective) {
	for _, value := range values {
		if strings.HasPrefix(before+value, toComplete) {
			offered = append(offered, before+value)
		}
	}
	slices.Sort(offered)
	return slices.Compact(offered), cobra.ShellCompDirectiveNoFileComp
}

// kinds returns all kinds of Cluster API and of its providers except templates, and Node.
func (f *Factory) kinds() []string {
	kinds := []string{"node/"}
	discovery, err := f.Hurry().ToDiscoveryClient()
	mapper, wrong := f.Config.ToRESTMapper()
	if err != nil || wrong != nil {
		return kinds
	}
	resources, _ := restmapper.NewDiscoveryCategoryExpander(discovery).Expand("cluster-api")
	for _, resource := range resources {
		if singular, err := mapper.ResourceSingularizer(resource.Resource); err == nil && !strings.HasSuffix(singular, "template") {
			kinds = append(kinds, singular+"/")
		}
	}
	return kinds
}

// list returns the objects of a kind. On an error, there is no completion.
func (f *Factory) list(kind string) []unstructured.Unstructured {
	f.Hurry()
	management, err := f.Management()
	if err != nil {
		return nil
	}
	mapping, err := Kind(management.RESTMapper(), kind)
	if err != nil {
		return nil
	}
	namespace, _ := f.Namespace()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	_ = management.List(context.Background(), list, client.InNamespace(namespace)) // it takes three seconds at most
	return list.Items
}

// of returns the objects of a kind by their names. For Nodes, it returns Machines by the names of their Nodes, because most Nodes are in
// workload clusters.
func (f *Factory) of(kind string) map[string]unstructured.Unstructured {
	all := map[string]unstructured.Unstructured{}
	if !slices.Contains([]string{"node", "nodes", "no"}, kind) {
		for _, object := range f.list(kind) {
			all[object.GetName()] = object
		}
		return all
	}
	for _, machine := range f.list("machines") {
		if name, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name"); name != "" {
			all[name] = machine
		}
	}
	return all
}

func (f *Factory) names(kind string) []string { return slices.Collect(maps.Keys(f.of(kind))) }

// keys returns the labels, annotations and taints of an object or, for a Node, of its Machine.
func (f *Factory) keys(named Argument) []string {
	object := f.of(named.Kind)[named.Name]
	keys := slices.AppendSeq(slices.Collect(maps.Keys(object.GetLabels())), maps.Keys(object.GetAnnotations()))
	taints, _, _ := unstructured.NestedSlice(object.Object, "spec", "taints")
	for _, t := range taints {
		if taint, ok := t.(map[string]any); ok {
			keys = append(keys, fmt.Sprintf("%s:%s", taint["key"], taint["effect"]))
		}
	}
	return keys
}

// Hurry limits each request to an API server to three seconds, unless the user sets --request-timeout.
func (f *Factory) Hurry() *genericclioptions.ConfigFlags {
	if f.Config.Timeout != nil && *f.Config.Timeout == "0" {
		*f.Config.Timeout = "3s"
	}
	return f.Config
}
