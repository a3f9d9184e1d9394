// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/restmapper"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
)

// What is completed, as templates of kubectl get.
const (
	names       = `{{range .items}}{{.metadata.name}} {{end}}`
	clusterKeys = `{{range .items}}{{.metadata.namespace}}/{{.metadata.name}} {{end}}`
	nodeNames   = `{{range .items}}{{with .status}}{{with .nodeRef}}{{.name}} {{end}}{{end}}{{end}}`
	keys        = `{{range $key, $_ := .metadata.labels}}{{$key}} {{end}}{{range $key, $_ := .metadata.annotations}}{{$key}} {{end}}` +
		`{{with .spec}}{{range .taints}}{{.key}}:{{.effect}} {{end}}{{end}}`
	keysOfNode = `{{range .items}}{{$machine := .}}{{with .status}}{{with .nodeRef}}{{if eq .name %q}}{{with $machine}}` + keys + `{{end}}{{end}}{{end}}{{end}}{{end}}`

	machines = "machines.cluster.x-k8s.io"
	clusters = "clusters.cluster.x-k8s.io"
)

// Complete completes the arguments of a command, as ParseArguments reads them: kinds, names and, after an object, its keys.
func (f *Factory) Complete(takes Takes) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		kind, _, slash := strings.Cut(toComplete, "/")
		typed := len(args) > 0 && !strings.Contains(args[0], "/")
		switch {
		case typed && len(args) == 1:
			return f.offer(toComplete, "", f.names(args[0]))
		case len(args) > 0 && takes.Key:
			return f.offer(toComplete, "", f.keys(args))
		case slash:
			return f.offer(toComplete, kind+"/", f.names(kind))
		case takes.Clusters:
			return f.offer(toComplete, "", f.get(names, clusters))
		case len(args) == 0:
			offered, directive := f.offer(toComplete, "", f.kinds())
			return offered, directive | cobra.ShellCompDirectiveNoSpace
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlag completes the value of a flag that all commands have.
func (f *Factory) CompleteFlag(name string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		completion.SetFactoryForCompletion(cmdutil.NewFactory(f.Config))
		var values []string
		switch name {
		case "context":
			values = completion.ListContextsInConfig("")
		case "cluster":
			values = completion.ListClustersInConfig("")
		case "user":
			values = completion.ListUsersInConfig("")
		case "namespace":
			values = f.get(names, "namespaces")
		case "management-cluster", "workload-cluster":
			values = f.get(clusterKeys, clusters)
		}
		return f.offer(toComplete, "", values)
	}
}

func (f *Factory) offer(toComplete, before string, values []string) ([]string, cobra.ShellCompDirective) {
	var offered []string
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
	f.hurry()
	kinds := []string{"node/"}
	discovery, err := f.Config.ToDiscoveryClient()
	if err != nil {
		return kinds
	}
	mapper, err := f.Config.ToRESTMapper()
	if err != nil {
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

// names returns the names of the objects of a kind in the namespace. Nodes are those that Machines name: most are in workload clusters.
func (f *Factory) names(kind string) []string {
	if isNode(kind) {
		return f.get(nodeNames, machines)
	}
	return f.get(names, f.resource(kind))
}

// keys returns the labels, annotations and taints of the object that is named; of a Node, those of its Machine.
func (f *Factory) keys(args []string) []string {
	parsed, err := ParseArguments(args, Takes{})
	switch {
	case err != nil || len(parsed.Objects) == 0:
		return nil
	case isNode(parsed.Objects[0].Kind):
		return f.get(fmt.Sprintf(keysOfNode, parsed.Objects[0].Name), machines)
	}
	return f.get(keys, f.resource(parsed.Objects[0].Kind), parsed.Objects[0].Name)
}

func isNode(kind string) bool { return slices.Contains([]string{"node", "nodes", "no"}, kind) }

// resource returns the resource that the user calls this, with its API group.
func (f *Factory) resource(kind string) string {
	if mapper, err := f.Config.ToRESTMapper(); err == nil {
		if mapping, err := Kind(mapper, kind); err == nil {
			return mapping.Resource.GroupResource().String()
		}
	}
	return kind
}

// get asks an API server as kubectl's completion does, but not for long, unless the user says so. An error is no completion.
func (f *Factory) get(template string, args ...string) []string {
	f.hurry()
	return completion.CompGetFromTemplate(&template, cmdutil.NewFactory(f.Config), "", args, "")
}

func (f *Factory) hurry() {
	if f.Config.Timeout != nil && *f.Config.Timeout == "0" {
		*f.Config.Timeout = "3s"
	}
}
