// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// calm is for how long nothing may have been written where everything has settled. Cluster API looks at an object once a second
// at most, and what it puts off until then is in no queue that could be asked for.
const calm = 2 * time.Second

// watched knows when something of the chain, or what is inherited of a Node, was written last.
type watched struct {
	mu   sync.Mutex
	last time.Time

	stop context.CancelFunc
}

func (w *watched) written() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
}

// since tells for how long nothing has been written.
func (w *watched) since() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.last)
}

// watch watches the management cluster that the world has now, and its workload cluster.
func (w *world) watch() {
	w.t.Helper()
	if w.watched != nil {
		w.watched.stop()
	}
	var err error
	w.watched, err = watchAll(w.ctx, w.AdminConfig(), w.workload.AdminConfig())
	w.Expect(err).NotTo(HaveOccurred())
}

func watchAll(ctx context.Context, management, workload *rest.Config) (*watched, error) {
	objects, err := metadata.NewForConfig(management)
	if err != nil {
		return nil, fmt.Errorf("making a client that watches objects: %w", err)
	}
	nodes, err := kubernetes.NewForConfig(workload)
	if err != nil {
		return nil, fmt.Errorf("making a client that watches Nodes: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watched{last: time.Now(), stop: stop}
	of := metadatainformer.NewSharedInformerFactory(objects, 0)
	for _, gvk := range chain() {
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		if _, err := of.ForResource(resource).Informer().AddEventHandler(w.handler(sameVersion)); err != nil {
			return nil, fmt.Errorf("watching %s: %w", resource.Resource, err)
		}
	}
	ofNodes := informers.NewSharedInformerFactory(nodes, 0)
	if _, err := ofNodes.Core().V1().Nodes().Informer().AddEventHandler(w.handler(sameNode)); err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	of.Start(ctx.Done())
	ofNodes.Start(ctx.Done())
	of.WaitForCacheSync(ctx.Done())
	ofNodes.WaitForCacheSync(ctx.Done())
	return w, nil
}

func (w *watched) handler(same func(before, after any) bool) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.written() },
		DeleteFunc: func(any) { w.written() },
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				w.written()
			}
		},
	}
}

func sameVersion(before, after any) bool {
	return before.(*metav1.PartialObjectMetadata).ResourceVersion == after.(*metav1.PartialObjectMetadata).ResourceVersion
}

// sameNode leaves out heartbeats.
func sameNode(before, after any) bool {
	one, other := before.(*corev1.Node), after.(*corev1.Node)
	return equality.Semantic.DeepEqual(one.Labels, other.Labels) && equality.Semantic.DeepEqual(one.Annotations, other.Annotations) &&
		equality.Semantic.DeepEqual(one.Spec, other.Spec)
}

// expectSettled expects that everything is as it was asked for, and that nobody has anything left to do. It returns the chain.
func (w *world) expectSettled(g Gomega, begun time.Time) (all []unstructured.Unstructured) {
	// The cheapest first.
	g.Expect(min(w.watched.since(), time.Since(begun))).To(BeNumerically(">=", calm), "something is still being written")
	if w.md != nil {
		w.deployed(g)
	}
	if w.managed != nil {
		w.built(g)
	}
	for _, gvk := range chain() {
		objects := w.list(w.Client, gvk)
		all = append(all, objects...)
		if gvk == machineKind {
			continue // after a conflict about its Node, Cluster API may leave a Machine's generation unmentioned until it looks again
		}
		for _, object := range objects {
			if seen, found, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration"); found {
				g.Expect(seen).To(Equal(object.GetGeneration()), "%s %s is still to be looked at", gvk.Kind, object.GetName())
			}
		}
	}
	g.Expect(w.queued()).To(BeEmpty(), "somebody is still at work")
	return all
}

// settle waits until worlds have settled.
func settle(worlds ...*world) {
	worlds[0].t.Helper()
	begun := time.Now()
	worlds[0].Eventually(func(g Gomega) {
		for _, w := range worlds {
			w.expectSettled(g, begun)
		}
	}).Should(Succeed())
}

// working is a queue with something in it, or from which something has been taken that is not done yet.
var working = regexp.MustCompile(`^workqueue_(?:depth|unfinished_work_seconds)\{(.*)\} ([0-9].*)$`)

// queued are the queues of Cluster API's managers and of Heirloom that are not empty.
func (w *world) queued() []string {
	urls := w.managers.MetricsURLs()
	if w.Heirloom != nil {
		urls = append(urls, w.MetricsURL)
	}
	var queues []string
	for _, url := range urls {
		metrics, err := stage.Metrics(w.ctx, url)
		w.Expect(err).NotTo(HaveOccurred())
		for line := range strings.SplitSeq(metrics, "\n") {
			if !strings.HasPrefix(line, "workqueue_") {
				continue // most have nothing to do with queues
			}
			if match := working.FindStringSubmatch(line); match != nil && match[2] != "0" {
				queues = append(queues, match[1])
			}
		}
	}
	return queues
}
