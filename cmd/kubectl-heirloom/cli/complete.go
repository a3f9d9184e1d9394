// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd/api"
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

// CompleteFlag completes the value of a flag that kubectl has, too, or one that is the <namespace>/<name> of a Cluster.
func (f *Factory) CompleteFlag(name string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		config, err := f.Config.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			config = api.Config{}
		}
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

// kinds returns all kinds of Cluster API and of its providers without templates, and Nodes.
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

// list returns objects of a kind, or these. An error is no completion.
func (f *Factory) list(kind string, names ...string) (all []*unstructured.Unstructured) {
	mapper, err := f.Hurry().ToRESTMapper()
	if err != nil {
		return nil
	}
	mapping, err := Kind(mapper, kind)
	if err != nil {
		return nil
	}
	namespace, _ := f.Namespace()
	_ = resource.NewBuilder(f.Config).Unstructured().NamespaceParam(namespace).DefaultNamespace().Flatten().
		ResourceTypeOrNameArgs(true, append([]string{mapping.Resource.GroupResource().String()}, names...)...).
		Do().Visit(func(info *resource.Info, _ error) error {
		if object, ok := info.Object.(*unstructured.Unstructured); ok {
			all = append(all, object)
		}
		return nil
	})
	return all
}

// names returns the names of objects. Nodes are those that Machines name: most are in workload clusters.
func (f *Factory) names(kind string) (names []string) {
	if !isNode(kind) {
		for _, object := range f.list(kind) {
			names = append(names, object.GetName())
		}
		return names
	}
	for _, machine := range f.list("machines") {
		if node := nodeOf(machine); node != "" {
			names = append(names, node)
		}
	}
	return names
}

func nodeOf(machine *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name")
	return name
}

// keys returns the labels, annotations and taints of an object; of a Node, those of its Machine.
func (f *Factory) keys(object Argument) (keys []string) {
	var found []*unstructured.Unstructured
	if isNode(object.Kind) {
		found = slices.DeleteFunc(f.list("machines"), func(m *unstructured.Unstructured) bool { return nodeOf(m) != object.Name })
	} else {
		found = f.list(object.Kind, object.Name)
	}
	for _, o := range found {
		keys = slices.AppendSeq(slices.AppendSeq(keys, maps.Keys(o.GetLabels())), maps.Keys(o.GetAnnotations()))
		taints, _, _ := unstructured.NestedSlice(o.Object, "spec", "taints")
		for _, t := range taints {
			if taint, ok := t.(map[string]any); ok {
				key, _ := taint["key"].(string)
				effect, _ := taint["effect"].(string)
				keys = append(keys, key+":"+effect)
			}
		}
	}
	return keys
}

func isNode(kind string) bool { return slices.Contains([]string{"node", "nodes", "no"}, kind) }

// Hurry has an API server asked for three seconds at most, unless the user says how long.
func (f *Factory) Hurry() *genericclioptions.ConfigFlags {
	if f.Config.Timeout != nil && *f.Config.Timeout == "0" {
		*f.Config.Timeout = "3s"
	}
	return f.Config
}
