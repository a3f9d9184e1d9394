// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/bootstrap"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Objects are the objects that an answer needs besides the tree of the Cluster.
type Objects struct {
	// Configurations are the bootstrap configurations of each pool.
	Configurations map[*compare.Object][]Configuration
	// Stored returns an object of the tree as it is stored.
	Stored func(schema.GroupVersionKind, inherit.Ref) *unstructured.Unstructured
	// Notes name configurations that cannot be read.
	Notes []string
}

// Read reads the bootstrap configuration of each pool of a Cluster.
func Read(ctx context.Context, w *compare.World, tree *compare.Tree) Objects {
	all := Objects{Configurations: map[*compare.Object][]Configuration{}}
	get := func(gvk schema.GroupVersionKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u, w.Store.Get(ctx, key, u)
	}
	all.Stored = func(gvk schema.GroupVersionKind, of inherit.Ref) *unstructured.Unstructured {
		u, _ := get(gvk, types.NamespacedName{Namespace: of.Object.GetNamespace(), Name: of.Object.GetName()}) // the store has it
		return u
	}
	for _, pool := range tree.Children {
		gvk, name := pool.GVK, pool.Object.GetName() // a control plane has its configuration itself
		if _, is := pool.Object.(*inherit.ControlPlane); !is {
			ref := configOf(pool)
			if ref.Name == "" {
				continue
			}
			served, known, err := w.Store.Chain(tree.Cluster).Served(ref.GroupKind().WithVersion(""))
			if gvk, name = served, ref.Name; err != nil || !known {
				all.Notes = append(all.Notes, ref.Kind+" "+ref.Name+" cannot be read, because the API server does not serve its kind.")
				continue
			}
		}
		u, err := get(gvk, types.NamespacedName{Namespace: pool.Object.GetNamespace(), Name: name})
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case err != nil:
			all.Notes = append(all.Notes, gvk.Kind+" "+name+" cannot be read: "+cli.OneLine(err))
		default:
			all.Configurations[pool] = append(all.Configurations[pool], configuration(u))
		}
	}
	return all
}

func configuration(u *unstructured.Unstructured) Configuration {
	c := Configuration{
		Source: compare.Source{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}, Declares: bootstrap.Of(u.Object),
	}
	if name := u.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]; name != "" {
		kind, _, _ := strings.Cut(u.GetAnnotations()[clusterv1.TemplateClonedFromGroupKindAnnotation], ".")
		c.ClonedFrom = strings.TrimSpace(kind + " " + name)
	}
	return c
}

// configOf returns the bootstrap configuration of a pool, or its template.
func configOf(pool *compare.Object) clusterv1.ContractVersionedObjectReference {
	switch o := pool.Object.(type) {
	case *clusterv1.MachineDeployment:
		return o.Spec.Template.Spec.Bootstrap.ConfigRef
	case *clusterv1.MachineSet:
		return o.Spec.Template.Spec.Bootstrap.ConfigRef
	case *clusterv1.MachinePool:
		return o.Spec.Template.Spec.Bootstrap.ConfigRef
	case *clusterv1.Machine:
		return o.Spec.Bootstrap.ConfigRef
	}
	return clusterv1.ContractVersionedObjectReference{}
}
