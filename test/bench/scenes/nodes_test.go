// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

	mu      sync.Mutex
	known   map[string]*corev1.Node
	awaited []*awaited
}

// awaited are Nodes that are to look in some way. It is guarded by the lock of the Nodes that it belongs to.
type awaited struct {
	looks   func(*corev1.Node) bool
	missing map[string]bool
	// at is when each Node that looks as expected was seen.
	at   map[string]time.Time
	done chan struct{}
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
	for _, awaited := range n.awaited {
		awaited.saw(node)
	}
}

func (n *nodes) gone(object any) {
	if stale, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = stale.Obj
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, object.(*corev1.Node).Name)
}

func (a *awaited) saw(node *corev1.Node) {
	if !a.missing[node.Name] || !a.looks(node) {
		return
	}
	delete(a.missing, node.Name)
	a.at[node.Name] = time.Now()
	if len(a.missing) == 0 {
		close(a.done)
	}
}

// expect begins to await that these Nodes look in a way in which none of them does yet; there need not be any of them yet.
func (n *nodes) expect(names []string, looks func(*corev1.Node) bool) (*awaited, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := &awaited{looks: looks, missing: map[string]bool{}, at: map[string]time.Time{}, done: make(chan struct{})}
	for _, name := range names {
		if node := n.known[name]; node != nil && looks(node) {
			return nil, fmt.Errorf("node %s looks already as it is expected to: nothing would be measured", name)
		}
		a.missing[name] = true
	}
	n.awaited = append(n.awaited, a)
	return a, nil
}

// wait waits until all of these Nodes look as expected. It returns when each of them was first seen like that, and when the last was.
func (n *nodes) wait(ctx context.Context, a *awaited) (at map[string]time.Time, last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-a.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.awaited = slices.DeleteFunc(n.awaited, func(other *awaited) bool { return other == a })
	if err != nil {
		return nil, last, fmt.Errorf("%d of %d Nodes do not look as expected: %w", len(a.missing), len(a.missing)+len(a.at), err)
	}
	return a.at, slices.MaxFunc(slices.Collect(maps.Values(a.at)), time.Time.Compare), nil
}
