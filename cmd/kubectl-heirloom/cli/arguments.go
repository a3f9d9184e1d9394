// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NoArguments is what a command takes that takes no arguments.
func NoArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, and got %q", command.CommandPath(), args)
	}
	return nil
}

// Takes is what a command takes as arguments: KIND/NAME..., KIND NAME... or KIND, as kubectl does.
type Takes struct {
	// Clusters says that the command is about Clusters: a bare NAME is that of a Cluster, and no argument means all.
	Clusters bool
	// Key says that the last argument may be the key of a label, annotation, taint or field.
	Key bool
	// Choosing says that flags choose among the objects of a KIND, so that no object may be named.
	Choosing bool
}

// Argument is an object as it was typed.
type Argument struct{ Kind, Name string }

// Arguments are what the arguments of a command mean, before the API server was asked which kinds it knows.
type Arguments struct {
	// Objects are those that are named.
	Objects []Argument
	// All is the kind of which all objects are meant, if none is named.
	All string
	Key string
}

// ParseArguments reads arguments without asking an API server.
func ParseArguments(args []string, takes Takes) (a Arguments, err error) {
	kind, rest, first := "", args, ""
	switch {
	case len(args) > 0 && !strings.Contains(args[0], "/") && (!takes.Clusters || isCluster(args[0])):
		kind, rest = args[0], args[1:]
	case takes.Clusters:
		kind = "cluster"
	case len(args) == 0:
		return a, errors.New("name an object, such as machine/md-0-x7k2p, or a kind, such as machines")
	default:
		first = args[0]
	}
	last := len(rest) - 1
	if takes.Key && (last > 0 || last == 0 && takes.Choosing) && isKey(rest[last], first) {
		rest, a.Key = rest[:last], rest[last]
	}
	if len(rest) == 0 {
		a.All = kind
	} else if takes.Choosing {
		return a, fmt.Errorf("%q names an object, but flags choose among all objects of a kind: leave out one or the other", rest[0])
	}
	for _, arg := range rest {
		object := Argument{kind, arg}
		if before, name, slash := strings.Cut(arg, "/"); slash && (kind == "" || takes.Clusters) {
			object = Argument{before, name}
		}
		switch {
		case takes.Clusters && (!isCluster(object.Kind) || object.Name == ""):
			return a, fmt.Errorf("%q is not a Cluster: write cluster/NAME or NAME, and choose its namespace with -n", arg)
		case object.Kind == "" || object.Name == "" || strings.Contains(object.Name, "/"):
			return a, fmt.Errorf("%q is not an object: write KIND/NAME, or KIND NAME, and choose its namespace with -n", arg)
		}
		a.Objects = append(a.Objects, object)
	}
	return a, nil
}

// isKey reports whether an argument is a key rather than an object. machine.cluster.x-k8s.io/exclude-node-draining is a key, unless the
// first object is written with its API group, too.
func isKey(arg, first string) bool {
	kind, _, slash := strings.Cut(arg, "/")
	of, _, _ := strings.Cut(first, "/")
	return !slash || strings.Contains(kind, ".") && !strings.Contains(of, ".")
}

func isCluster(kind string) bool {
	name, group, _ := strings.Cut(strings.ToLower(kind), ".")
	return slices.Contains([]string{"cluster", "clusters", "cl"}, name) &&
		(group == "" || group == clusterv1.GroupVersion.Group || strings.HasSuffix(group, "."+clusterv1.GroupVersion.Group))
}

// Object is an object of a kind that the API server knows.
type Object struct {
	Kind *meta.RESTMapping
	Name string
}

// Request is what arguments mean to an API server.
type Request struct {
	// Objects are those that are named.
	Objects []Object
	// All is the kind of which all objects are meant, instead of single ones.
	All *meta.RESTMapping
	// Key is that of a label, annotation, taint or field, or empty.
	Key string
}

// Resolve finds out which kinds the arguments mean.
func (a Arguments) Resolve(mapper meta.RESTMapper) (*Request, error) {
	r := &Request{Key: a.Key}
	if a.All != "" {
		kind, err := Kind(mapper, a.All)
		r.All = kind
		return r, err
	}
	for _, object := range a.Objects {
		kind, err := Kind(mapper, object.Kind)
		if err != nil {
			return nil, err
		}
		r.Objects = append(r.Objects, Object{kind, object.Name})
	}
	return r, nil
}

// Kind returns the kind that a user calls this: by its plural, singular or short name, with or without its API group. Without a group,
// Cluster API's own kinds come first.
func Kind(mapper meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	full, resource := schema.ParseResourceArg(strings.ToLower(name))
	tries := []schema.GroupVersionResource{resource.WithVersion("")}
	if full != nil {
		tries = append([]schema.GroupVersionResource{*full}, tries...)
	} else if resource.Group == "" {
		tries = append([]schema.GroupVersionResource{{Group: clusterv1.GroupVersion.Group, Resource: resource.Resource}}, tries...)
	}
	for _, try := range tries {
		gvk, err := mapper.KindFor(try)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	return nil, fmt.Errorf("the server doesn't have a resource type %q", name)
}
