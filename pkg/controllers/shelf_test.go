// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// shelf is an API server that copies nothing but Nodes that it gets, for thousands of Clusters. It has Clusters and MachinePools, or Nodes and
// Pods.
type shelf struct {
	client.Client
	clusters []clusterv1.Cluster
	at       map[string]int                    // the index of a Cluster or a Node, by name
	pools    map[string]*clusterv1.MachinePool // by name, and by the values of their indexes
	nodes    []corev1.Node
	pods     []corev1.Pod
	// wrote is called after each write of a Node, evicts before each eviction, and if they are there, reads before each read and listsPods
	// before each list of Pods.
	wrote            func(*corev1.Node)
	evicts           func(*corev1.Pod) error
	reads, listsPods func()
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if s.reads != nil {
		s.reads()
	}
	switch into := into.(type) {
	case *clusterv1.Cluster:
		if i, found := s.at[key.Name]; found {
			*into = s.clusters[i]
			return nil
		}
	case *clusterv1.MachinePool:
		if pool := s.pools[key.Name]; pool != nil {
			*into = *pool
			return nil
		}
	case *corev1.Node:
		if i, found := s.at[key.Name]; found {
			s.nodes[i].DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *shelf) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	if s.reads != nil {
		s.reads()
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	field, value := "", ""
	if o.FieldSelector != nil {
		for _, r := range o.FieldSelector.Requirements() {
			field, value = r.Field, r.Value
		}
	}
	switch list := list.(type) {
	case *clusterv1.ClusterList:
		list.Items = s.clusters
	case *clusterv1.MachinePoolList:
		if pool := s.pools[field+"="+value]; pool != nil {
			list.Items = []clusterv1.MachinePool{*pool}
		}
	case *corev1.NodeList:
		list.Items = s.nodes
		if field == "metadata.name" {
			i := s.at[value]
			list.Items = s.nodes[i : i+1]
		}
	case *corev1.PodList:
		if s.listsPods != nil {
			s.listsPods()
		}
		for i := range s.pods {
			if s.pods[i].Spec.NodeName == value {
				list.Items = append(list.Items, s.pods[i])
			}
		}
	}
	return nil
}

func (s *shelf) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	node := object.(*corev1.Node) //nolint:forcetypeassert // the loop patches Nodes
	node.DeepCopyInto(&s.nodes[s.at[node.Name]])
	s.wrote(node)
	return nil
}

func (s *shelf) SubResource(string) client.SubResourceClient { return evictor{s: s} }

type evictor struct {
	client.SubResourceClient
	s *shelf
}

func (e evictor) Create(_ context.Context, object, _ client.Object, _ ...client.SubResourceCreateOption) error {
	return e.s.evicts(object.(*corev1.Pod)) //nolint:forcetypeassert // the loop evicts Pods
}

// add adds a Cluster whose MachinePool has a number of Nodes with a Pod each, and returns its API server.
func (s *shelf) add(name string, labels map[string]string, nodes int) *shelf {
	of, pool := &shelf{at: map[string]int{}, nodes: make([]corev1.Node, 0, nodes), pods: make([]corev1.Pod, 0, nodes)}, machinePool()
	of.wrote = func(*corev1.Node) {}
	s.at[name] = len(s.clusters)
	s.clusters = append(s.clusters, clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "c", Labels: labels}})
	pool.Name, pool.Spec.ClusterName, pool.Labels[clusterv1.ClusterNameLabel], pool.Spec.ProviderIDList = name, name, name, nil
	for i := range nodes {
		n := node(fmt.Sprint(name, "-", i))
		n.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		pool.Spec.ProviderIDList = append(pool.Spec.ProviderIDList, n.Spec.ProviderID)
		of.at[n.Name] = i
		of.nodes = append(of.nodes, *n)
		of.pods = append(of.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: n.Name}, Spec: corev1.PodSpec{NodeName: n.Name}})
	}
	s.pools[name] = pool
	for field := range owners.Indexes(pool) {
		for _, value := range owners.IndexValues(pool, field) {
			s.pools[field+"="+value] = pool
		}
	}
	return of
}
