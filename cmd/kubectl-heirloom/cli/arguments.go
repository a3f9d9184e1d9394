// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NoArguments refuses all arguments.
func NoArguments(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but got %q", command.CommandPath(), args)
	}
	return nil
}

// Takes describes the arguments of a command: KIND/NAME..., KIND NAME... or KIND, as in kubectl.
type Takes struct {
	// Clusters says that the command is about Clusters: a bare NAME is the name of a Cluster, and no argument means all Clusters.
	Clusters bool
	// Key says that the last argument may be the key of a label, annotation, taint or field.
	Key bool
	// Choosing says that flags select objects of a KIND, so that no object may be named.
	Choosing bool
}

// Argument is an object as the user typed it.
type Argument struct{ Kind, Name string }

// Arguments are the objects that the arguments of a command name or, without names, All objects of a kind. The kinds are not resolved yet.
type Arguments struct {
	Objects  []Argument
	All, Key string
	takes    Takes
	// kindFirst says that the kind is an argument of its own.
	kindFirst bool
}

// ParseArguments reads arguments without a call to an API server.
func ParseArguments(args []string, takes Takes) (a Arguments, err error) {
	kind, rest := takes.kind(args)
	a.takes, a.kindFirst = takes, kind != ""
	if len(rest) == 0 && kind == "" {
		return a, errors.New("specify an object, such as machine/md-0-x7k2p, or a kind, such as machines")
	}
	last := len(rest) - 1
	noName := last == 0 && (takes.Choosing || kind != "" && strings.Contains(rest[0], "/"))
	if takes.Key && (last > 0 || noName) && (kind != "" || isKey(rest[last], args[0])) {
		rest, a.Key = rest[:last], rest[last]
	}
	if len(rest) == 0 {
		a.All = kind
	} else if takes.Choosing {
		return a, fmt.Errorf("name %q cannot be combined with --selector or --all-namespaces", rest[0])
	}
	for _, arg := range rest {
		object, err := takes.object(kind, arg)
		if err != nil {
			return a, err
		}
		a.Objects = append(a.Objects, object)
	}
	return a, nil
}

// kind returns the KIND at the beginning of the arguments, if any, and the other arguments.
func (takes Takes) kind(args []string) (string, []string) {
	if len(args) > 0 && !strings.Contains(args[0], "/") && (!takes.Clusters || isCluster(args[0])) {
		return args[0], args[1:]
	}
	if takes.Clusters {
		return "cluster", args
	}
	return "", args
}

// object reads KIND/NAME or, after a KIND, NAME.
func (takes Takes) object(kind, arg string) (Argument, error) {
	object := Argument{kind, arg}
	if before, name, slash := strings.Cut(arg, "/"); slash && (kind == "" || takes.Clusters) {
		object = Argument{before, name}
	}
	if takes.Clusters && (!isCluster(object.Kind) || object.Name == "") {
		return object, fmt.Errorf("%q is not a Cluster: use cluster/NAME or NAME, and -n for its namespace", arg)
	}
	if object.Kind == "" || object.Name == "" || strings.Contains(object.Name, "/") {
		return object, fmt.Errorf("%q is not an object: use KIND/NAME or KIND NAME, and -n for its namespace", arg)
	}
	return object, nil
}

// isKey reports whether an argument is a key rather than an object. machine.cluster.x-k8s.io/exclude-node-draining is a key, unless the
// first object also has its API group.
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

// Request is the resolved form of Arguments.
type Request struct {
	Objects []Object
	All     *meta.RESTMapping
	Key     string
}

// errNoKind begins with kubectl's words.
var errNoKind = errors.New("the server doesn't have a resource type")

// named reads a first word that is no kind as the name of a Cluster. The next word is a key then.
func (a Arguments) named(mapper meta.RESTMapper) Arguments {
	first := a.All
	if a.kindFirst && a.takes.Key && a.Key == "" && len(a.Objects) == 1 {
		first = a.Objects[0].Kind
	}
	if _, err := Kind(mapper, first); first == "" || a.takes.Choosing || !errors.Is(err, errNoKind) {
		return a
	}
	if a.All == "" {
		a.Key = a.Objects[0].Name
	}
	a.Objects, a.All = []Argument{{"cluster", first}}, ""
	return a
}

// Resolve finds the kinds of the arguments.
func (a Arguments) Resolve(mapper meta.RESTMapper) (r *Request, err error) {
	a = a.named(mapper)
	r = &Request{Key: a.Key}
	if a.All != "" {
		r.All, err = Kind(mapper, a.All)
		return r, err
	}
	for i, object := range a.Objects {
		kind, err := Kind(mapper, object.Kind)
		if err != nil && a.Key == "" && i > 0 && i == len(a.Objects)-1 && strings.Contains(object.Kind, ".") {
			r.Key = object.Kind + "/" + object.Name // looked like an object, because objects with an API group precede it
			return r, nil
		}
		if err != nil {
			return nil, err
		}
		r.Objects = append(r.Objects, Object{kind, object.Name})
	}
	return r, nil
}

// Kind returns the kind with this plural, singular or short name, with or without its API group. Without a group, Cluster API's own kinds
// come first.
func Kind(mapper meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	full, resource := schema.ParseResourceArg(strings.ToLower(name))
	if full == nil {
		full = &schema.GroupVersionResource{Group: cmp.Or(resource.Group, clusterv1.GroupVersion.Group), Resource: resource.Resource}
	}
	gvk, err := mapper.KindFor(*full)
	if meta.IsNoMatchError(err) {
		gvk, err = mapper.KindFor(resource.WithVersion(""))
	}
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%w %q", errNoKind, name)
	}
	if err != nil {
		return nil, err
	}
	return mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}
