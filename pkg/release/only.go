// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Only limits a release to one object, a Machine with its Node, or to one Cluster with everything that belongs to it. Heirloom may
// run meanwhile, but then the object or its Cluster must be opted out. Heirloom's own Secret of keys stays.
type Only struct {
	schema.GroupVersionKind
	types.NamespacedName
}

func (o Only) isCluster() bool { return o.is("Cluster") }

func (o Only) is(kind string) bool {
	return o.GroupKind() == schema.GroupKind{Group: clusterv1.GroupVersion.Group, Kind: kind}
}

// String names it as kubectl does.
func (o Only) String() string {
	return strings.ToLower(o.GroupKind().String()) + "/" + o.Name + " in namespace " + o.Namespace
}

// only releases one object or one Cluster.
func (s *session) only(ctx context.Context) error {
	s.DeleteWebhookConfigurations, s.TakeLease = false, false // that would stop Heirloom for all others
	if s.Only.GroupKind() == nodeKind().GroupKind() {
		return errors.New("a Node is released with its Machine, or with its Cluster: name that")
	}
	if !s.Only.isCluster() && (!slices.Contains(s.groups(), s.Only.Group) || !inherits(s.Only.Group, s.Only.Kind)) {
		return fmt.Errorf("objects of kind %s inherit nothing; release a Cluster, a control plane, a MachineDeployment, MachinePool, "+
			"MachineSet or Machine, or what belongs to a Machine", s.Only.Kind)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(s.Only.GroupVersionKind)
	if err := s.management.Get(ctx, s.Only.NamespacedName, object); err != nil {
		return fmt.Errorf("getting %s: %w", s.Only, err)
	}
	if err := s.undisturbed(ctx, object); err != nil {
		return err
	}
	if s.Only.isCluster() {
		return s.cluster(ctx, object)
	}
	s.single(ctx, object)
	return s.report.err()
}

// undisturbed makes sure that Heirloom does not put back what is released: it does not run, or the object is opted out.
func (s *session) undisturbed(ctx context.Context, object *unstructured.Unstructured) error {
	if s.DryRun || inherit.Ignored(object) {
		return nil
	}
	cluster, err := s.clusterOf(ctx, object)
	if err != nil || cluster != nil && inherit.Ignored(cluster) {
		return err
	}
	err = s.stopWebhooks(ctx)
	if err == nil {
		err = s.noLeader(ctx)
	}
	if !errors.Is(err, errRunning) {
		return err
	}
	return fmt.Errorf("%w, because Heirloom runs; opt %s out first:\n  kubectl label %s %s --namespace %s %s=",
		errRunning, s.Only, strings.ToLower(s.Only.GroupKind().String()), s.Only.Name, s.Only.Namespace, inherit.IgnoreLabel)
}

// clusterOf returns the Cluster of an object, or nil if there is none.
func (s *session) clusterOf(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name, _, _ := unstructured.NestedString(object.Object, "spec", "clusterName")
	if name == "" {
		name = object.GetLabels()[clusterv1.ClusterNameLabel]
	}
	if s.Only.isCluster() || name == "" {
		return nil, nil
	}
	var found *unstructured.Unstructured
	mapping, err := s.management.RESTMapper().RESTMapping(
		schema.GroupKind{Group: clusterv1.GroupVersion.Group, Kind: "Cluster"}, clusterv1.GroupVersion.Version)
	if err == nil {
		found = &unstructured.Unstructured{}
		found.SetGroupVersionKind(mapping.GroupVersionKind)
		err = s.management.Get(ctx, types.NamespacedName{Namespace: object.GetNamespace(), Name: name}, found)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Cluster %s/%s: %w", object.GetNamespace(), name, err)
	}
	return found, nil
}

// cluster releases everything of one Cluster.
func (s *session) cluster(ctx context.Context, cluster *unstructured.Unstructured) error {
	s.Namespace = cluster.GetNamespace()
	kinds, kindsErr := s.kinds()
	scope, scopeErr := s.scope(ctx)
	keys, _, keysErr := s.keys(ctx)
	if err := errors.Join(kindsErr, scopeErr, keysErr); err != nil {
		return err
	}
	for _, kind := range kinds {
		s.objects(ctx, kind, scope)
	}
	switch {
	case client.ObjectKeyFromObject(cluster) == s.ManagementCluster:
		s.nodes(ctx, s.management, scope.hasNode)
	case s.hasWorkload(cluster, s.report.note):
		s.workload(ctx, cluster, s.admission(keys))
	}
	return s.report.err()
}

// single releases one object and, with a Machine, its Node: the label that opts the one out includes the other.
func (s *session) single(ctx context.Context, object *unstructured.Unstructured) {
	released := false
	work := func(do func() (bool, error)) {
		err := again(ctx, func() error {
			did, err := do()
			released = released || did
			return err
		})
		if err != nil {
			s.report.failed(fmt.Errorf("%s: %w", s.Only, err))
		}
	}
	work(func() (bool, error) {
		return s.object(ctx, s.Only.GroupVersionKind, meta.AsPartialObjectMetadata(object))
	})
	if s.Only.is("Machine") {
		work(func() (bool, error) { return s.nodeOf(ctx, object) })
	}
	if !released {
		s.report.note("%s: nothing to release", s.Only)
	}
}

// nodeOf releases the Node of a Machine.
func (s *session) nodeOf(ctx context.Context, machine *unstructured.Unstructured) (bool, error) {
	name, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name")
	if name == "" {
		return false, nil
	}
	cluster, _, _ := unstructured.NestedString(machine.Object, "spec", "clusterName")
	key, server := types.NamespacedName{Namespace: machine.GetNamespace(), Name: cluster}, s.management
	if key != s.ManagementCluster {
		c, err := s.Workload(ctx, key)
		if err != nil {
			return false, fmt.Errorf("its Node %s in workload cluster %s: %w", name, key, err)
		}
		server = s.reporting(c, " in workload cluster "+key.String())
	}
	return s.node(ctx, server, name, func(*corev1.Node) bool { return true })
}
