// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/restmapper"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
)

// Templates of kubectl get, by which names and keys are found. Nodes are those that Machines name: most are in workload clusters.
const (
	machines  = "machines.cluster.x-k8s.io"
	names     = `{{range .items}}{{.metadata.name}} {{end}}`
	nodeNames = `{{range .items}}{{with .status}}{{with .nodeRef}}{{.name}} {{end}}{{end}}{{end}}`
	keys      = `{{range $key, $_ := .metadata.labels}}{{$key}} {{end}}{{range $key, $_ := .metadata.annotations}}{{$key}} {{end}}` +
		`{{with .spec}}{{range .taints}}{{.key}}:{{.effect}} {{end}}{{end}}`
	keysOfNode = `{{range .items}}{{$m := .}}{{with .status}}{{with .nodeRef}}{{if eq .name %q}}{{with $m}}` + keys + `{{end}}{{end}}{{end}}{{end}}{{end}}`
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
		case slash:
			return offer(toComplete, kind+"/", f.names(kind))
		case len(args) == 0:
			offered, directive := offer(toComplete, "", f.kinds())
			return offered, directive | cobra.ShellCompDirectiveNoSpace
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlag completes the value of a flag that kubectl has, too, or one that is the <namespace>/<name> of a Cluster.
func (f *Factory) CompleteFlag(name string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		completion.SetFactoryForCompletion(cmdutil.NewFactory(f.Config))
		switch name {
		case "context":
			return offer(toComplete, "", completion.ListContextsInConfig(""))
		case "cluster":
			return offer(toComplete, "", completion.ListClustersInConfig(""))
		case "user":
			return offer(toComplete, "", completion.ListUsersInConfig(""))
		case "namespace":
			return offer(toComplete, "", f.get(names, "namespaces"))
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

// kinds returns all kinds of Cluster API and of its providers, and Nodes.
func (f *Factory) kinds() []string {
	kinds := []string{"node/"}
	discovery, err := f.Hurry().ToDiscoveryClient()
	mapper, wrong := f.Config.ToRESTMapper()
	if err != nil || wrong != nil {
		return kinds
	}
	resources, _ := restmapper.NewDiscoveryCategoryExpander(discovery).Expand("cluster-api")
	for _, resource := range resources {
		if singular, err := mapper.ResourceSingularizer(resource.Resource); err == nil {
			kinds = append(kinds, singular+"/")
		}
	}
	return kinds
}

func (f *Factory) names(kind string) []string {
	if isNode(kind) {
		return f.get(nodeNames, machines)
	}
	return f.get(names, f.resource(kind))
}

// keys returns the labels, annotations and taints of an object; of a Node, those of its Machine.
func (f *Factory) keys(object Argument) []string {
	if isNode(object.Kind) {
		return f.get(fmt.Sprintf(keysOfNode, object.Name), machines)
	}
	return f.get(keys, f.resource(object.Kind), object.Name)
}

func isNode(kind string) bool { return slices.Contains([]string{"node", "nodes", "no"}, kind) }

// resource returns what the user calls this with its API group, so that kubectl takes the same kind as the plugin.
func (f *Factory) resource(kind string) string {
	if mapper, err := f.Hurry().ToRESTMapper(); err == nil {
		if mapping, err := Kind(mapper, kind); err == nil {
			return mapping.Resource.GroupResource().String()
		}
	}
	return kind
}

// get asks as kubectl's completion does. An error is no completion.
func (f *Factory) get(template string, args ...string) []string {
	return completion.CompGetFromTemplate(&template, cmdutil.NewFactory(f.Hurry()), "", args, "")
}

// Hurry has an API server asked for three seconds at most, unless the user says how long.
func (f *Factory) Hurry() *genericclioptions.ConfigFlags {
	if f.Config.Timeout != nil && *f.Config.Timeout == "0" {
		*f.Config.Timeout = "3s"
	}
	return f.Config
}
