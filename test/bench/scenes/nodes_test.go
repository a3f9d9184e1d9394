// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// resolution is the interval between two looks at a cache. One watch fills each cache, so a look costs no request.
const resolution = 10 * time.Millisecond

// nodes has the Nodes of a workload cluster.
type nodes struct{ cache.Store }

func watchNodes(ctx context.Context, config *rest.Config) (*nodes, error) {
	config.ContentType = runtime.ContentTypeProtobuf
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client that watches Nodes: %w", err)
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	n := &nodes{factory.Core().V1().Nodes().Informer().GetStore()}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return n, nil
}

// watchMachines watches the metadata of a fleet's Machines.
func (f *fleet) watchMachines(ctx context.Context) (cache.Store, error) {
	c, err := metadata.NewForConfig(f.AdminConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client that watches Machines: %w", err)
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(c, 0, namespace, func(options *metav1.ListOptions) {
		options.LabelSelector = clusterv1.MachineDeploymentNameLabel + "=" + f.md.Name
	})
	machines := factory.ForResource(clusterv1.GroupVersion.WithResource("machines")).Informer().GetStore()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return machines, nil
}

func (n *nodes) look(name string, looks func(*corev1.Node) bool) bool {
	node, exists, _ := n.GetByKey(name)
	return exists && looks(node.(*corev1.Node))
}

// none returns an error if one of these Nodes already satisfies the condition. The Nodes need not exist.
func (n *nodes) none(names []string, looks func(*corev1.Node) bool) error {
	for _, name := range names {
		if n.look(name, looks) {
			return fmt.Errorf("node %s looks already as it is expected to: nothing would be measured", name)
		}
	}
	return nil
}

// wait waits until all of these Nodes satisfy the condition. It returns the time at which each Node first did.
func (n *nodes) wait(ctx context.Context, names []string, looks func(*corev1.Node) bool) (at map[string]time.Time, err error) {
	at = map[string]time.Time{}
	err = wait.PollUntilContextTimeout(ctx, resolution, patience, true, func(context.Context) (bool, error) {
		for _, name := range names {
			if at[name].IsZero() && n.look(name, looks) {
				at[name] = time.Now()
			}
		}
		return len(at) == len(names), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%d of %d Nodes do not look as expected: %w", len(names)-len(at), len(names), err)
	}
	return at, nil
}
