// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// kubelet returns a client with the rights of a Node's kubelet.
func (w *world) kubelet(name string) (*corev1client.CoreV1Client, error) {
	config := w.workload.AdminConfig()
	// Authorization and admission treat impersonation like the kubelet's own certificate, and it needs no key.
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes"}}
	kubelet, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for a kubelet: %w", err)
	}
	return kubelet, nil
}

// register creates a Machine's Node as the kubelet.
func (w *world) register(ctx context.Context, name string) error {
	kubelet, err := w.kubelet(name)
	if err != nil {
		return err
	}
	if _, err := kubelet.Nodes().Create(ctx, registered(name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating Node %s: %w", name, err)
	}
	return nil
}

// registered returns a Node as a kubelet creates it.
func registered(name string) *corev1.Node {
	node := stage.Node(name)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	return node
}

// inheritsLabels and inheritsAll report whether a Node has its inherited entries. A kubelet may set neither the restricted label nor the
// taint.
func inheritsLabels(node *corev1.Node) bool {
	_, role := node.Labels[roleLabel]
	return role && node.Labels[poolLabel] != ""
}

func inheritsAll(node *corev1.Node) bool {
	return inheritsLabels(node) && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == alwaysTaint })
}

// join registers all Nodes at the same time, and returns the time at which the last Node had its inherited entries of this world: Cluster
// API alone does not propagate annotated taints. It records the delays between the creation of Nodes and their entries, in seconds.
func (f *fleet) join(ctx context.Context, delays map[string]float64, names []string) (last time.Time, err error) {
	looks := inheritsLabels
	if f.heirloom {
		looks = inheritsAll
	}
	if err := f.nodes.none(names, looks); err != nil {
		return last, err
	}
	answered, at := map[string]time.Time{}, map[string]time.Time{}
	joining, ctx := errgroup.WithContext(ctx)
	joining.Go(func() (err error) {
		answered, err = f.registerAll(ctx, delays, names)
		return err
	})
	joining.Go(func() (err error) {
		at, err = f.nodes.wait(ctx, names, looks)
		last = time.Now()
		return err
	})
	if err := joining.Wait(); err != nil {
		return last, err
	}
	took := make([]float64, 0, len(names))
	for name := range at {
		took = append(took, max(0, at[name].Sub(answered[name]).Seconds())) // entries of the first version took no time
	}
	quantiles(delays, "labels", took)
	return last, nil
}

// quantiles records quantiles of durations in seconds.
func quantiles(into map[string]float64, what string, took []float64) {
	slices.Sort(took)
	for name, share := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		into[what+"-"+name] = took[int(math.Ceil(share*float64(len(took))))-1]
	}
}

// registerAll creates all Nodes at the same time, and returns the time of each answer. It records how long kubelets waited for it.
func (f *fleet) registerAll(ctx context.Context, delays map[string]float64, names []string) (map[string]time.Time, error) {
	kubelets := map[string]*corev1client.CoreV1Client{}
	for _, name := range names {
		var err error
		if kubelets[name], err = f.kubelet(name); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	answered, took := map[string]time.Time{}, []float64{}
	err := each(ctx, names, len(names), func(ctx context.Context, name string) error {
		begun := time.Now()
		_, err := kubelets[name].Nodes().Create(ctx, registered(name), metav1.CreateOptions{})
		mu.Lock()
		defer mu.Unlock()
		answered[name], took = time.Now(), append(took, time.Since(begun).Seconds())
		return err
	})
	quantiles(delays, "create", took)
	return answered, err
}
