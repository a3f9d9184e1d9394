// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// nodes watches the Nodes of a workload cluster. It has one watch for as long as the world is there, which costs the same whatever is
// measured.
type nodes struct {
	cancel context.CancelFunc

	mu    sync.Mutex
	known map[string]*corev1.Node
	await *awaited
}

// awaited are Nodes that are to look in some way.
type awaited struct {
	looks func(*corev1.Node) bool
	// since is when each of those began that still have to look so; took is how long it took the others.
	since map[string]time.Time
	took  map[string]time.Duration
	done  chan struct{}
}

func watchNodes(config *rest.Config) (*nodes, error) {
	config.ContentType = runtime.ContentTypeProtobuf
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client that watches Nodes: %w", err)
	}
	n := &nodes{known: map[string]*corev1.Node{}}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(node any) { n.saw(node.(*corev1.Node)) },
		UpdateFunc: func(_, node any) { n.saw(node.(*corev1.Node)) },
		DeleteFunc: n.gone,
	})
	if err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return n, nil
}

func (n *nodes) stop() {
	if n != nil {
		n.cancel()
	}
}

func (n *nodes) saw(node *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[node.Name] = node
	n.await.see(node)
}

func (n *nodes) gone(object any) {
	if stale, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = stale.Obj
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, object.(*corev1.Node).Name)
}

func (a *awaited) see(node *corev1.Node) {
	if a == nil {
		return
	}
	since, waiting := a.since[node.Name]
	if !waiting || !a.looks(node) {
		return
	}
	delete(a.since, node.Name)
	a.took[node.Name] = max(0, time.Since(since))
	if len(a.since) == 0 {
		close(a.done)
	}
}

// expect begins to await that these Nodes look in a way in which none does yet. A Node that does not exist is one of them as soon as it does.
func (n *nodes) expect(names []string, looks func(*corev1.Node) bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	n.await = &awaited{looks: looks, since: map[string]time.Time{}, took: map[string]time.Duration{}, done: make(chan struct{})}
	for _, name := range names {
		if node := n.known[name]; node != nil && looks(node) {
			return fmt.Errorf("node %s looks already as it is expected to: nothing would be measured", name)
		}
		n.await.since[name] = now
	}
	return nil
}

// wait waits until all expected Nodes look so, and returns how long each of them took.
func (n *nodes) wait(ctx context.Context) (map[string]time.Duration, error) {
	n.mu.Lock()
	await := n.await
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-await.done:
		return await.took, nil
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		return nil, fmt.Errorf("%d of %d Nodes do not look as expected: %w", len(await.since), len(await.since)+len(await.took), ctx.Err())
	}
}
