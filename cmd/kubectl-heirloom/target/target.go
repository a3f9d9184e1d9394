// SPDX-License-Identifier: Apache-2.0

// Package target finds out which objects the arguments of a command mean, in kubectl's way: KIND/NAME, KIND NAME, or a KIND. A command
// may also take the key of a label, annotation, taint or field, as the last argument.
package target

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Object is one that is named.
type Object struct {
	Kind *meta.RESTMapping
	Name string
}

// Request is what the arguments mean.
type Request struct {
	// Objects are those that are named.
	Objects []Object
	// All is the kind of which all objects are meant, instead of single ones.
	All *meta.RESTMapping
	// Key is that of a label, annotation, taint or field, or empty.
	Key string
}

// Parse reads arguments. choosing says that flags choose among the objects of a kind, so that no object is named.
func Parse(mapper meta.RESTMapper, args []string, choosing bool) (*Request, error) {
	switch {
	case len(args) == 0:
		return nil, errors.New("name an object, such as machine/md-0-x7k2p, or a kind, such as machines")
	case !strings.Contains(args[0], "/"):
		return ofKind(mapper, args, choosing)
	case choosing:
		return nil, fmt.Errorf("%q names an object, but -l and -A choose among all objects of a kind: leave out one or the other", args[0])
	}
	request := &Request{}
	for i, arg := range args {
		object, err := named(mapper, arg)
		switch {
		case err == nil && (i == 0 || !isKey(arg, args[0])):
			request.Objects = append(request.Objects, object)
		case i == 0:
			return nil, err
		case i < len(args)-1:
			return nil, fmt.Errorf("%q is no object that the API server knows as <kind>/<name>, and a key must be the last argument", arg)
		default:
			request.Key = arg
		}
	}
	return request, nil
}

// isKey reports whether an argument that can be read as an object is a key: machine.cluster.x-k8s.io/exclude-node-draining is one,
// unless the first object is written with its API group too.
func isKey(arg, first string) bool {
	return qualified(arg) && !qualified(first)
}

func qualified(arg string) bool {
	kind, _, _ := strings.Cut(arg, "/")
	return strings.Contains(kind, ".")
}

// ofKind reads arguments that begin with a kind.
func ofKind(mapper meta.RESTMapper, args []string, choosing bool) (*Request, error) {
	kind, err := Kind(mapper, args[0])
	if err != nil {
		return nil, err
	}
	rest := args[1:]
	switch {
	case choosing && len(rest) > 1, len(rest) > 2:
		return nil, fmt.Errorf("after %s there is too much: expected <kind>/<name>... [key], <kind> <name> [key], or <kind> -l <selector> [key]",
			args[0])
	case choosing && len(rest) == 1:
		return &Request{All: kind, Key: rest[0]}, nil
	case len(rest) == 0:
		return &Request{All: kind}, nil
	}
	request := &Request{Objects: []Object{{kind, rest[0]}}}
	if len(rest) == 2 {
		request.Key = rest[1]
	}
	return request, nil
}

func named(mapper meta.RESTMapper, arg string) (Object, error) {
	name, rest, ok := strings.Cut(arg, "/")
	if !ok || name == "" || rest == "" || strings.Contains(rest, "/") {
		return Object{}, fmt.Errorf("%q: expected <kind>/<name>", arg)
	}
	kind, err := Kind(mapper, name)
	return Object{kind, rest}, err
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
			return nil, fmt.Errorf("finding out what a %s is: %w", name, err)
		}
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return nil, fmt.Errorf("finding out what a %s is: %w", name, err)
		}
		return mapping, nil
	}
	return nil, fmt.Errorf("the API server knows no kind %q; kubectl api-resources lists all that it knows", name)
}
