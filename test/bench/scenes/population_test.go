// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// population watches how many Machines a MachineDeployment has.
type population struct {
	cancel context.CancelFunc

	mu      sync.Mutex
	count   int
	wanted  int
	reached chan time.Time // nil while nobody waits
}

// watchMachines watches the metadata of a fleet's Machines.
func (f *fleet) watchMachines() (*population, error) {
	c, err := metadata.NewForConfig(f.AdminConfig())
	if err != nil {
		return nil, fmt.Errorf("making a client that watches Machines: %w", err)
	}
	p := &population{}
	factory := metadatainformer.NewFilteredSharedInformerFactory(c, 0, namespace, func(options *metav1.ListOptions) {
		options.LabelSelector = clusterv1.MachineDeploymentNameLabel + "=" + f.md.Name
	})
	_, err = factory.ForResource(clusterv1.GroupVersion.WithResource("machines")).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.add(1) }, DeleteFunc: func(any) { p.add(-1) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching Machines: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return p, nil
}

func (p *population) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count += n
	p.tell()
}

// tell tells who waits, once.
func (p *population) tell() {
	if p.reached != nil && p.count == p.wanted {
		p.reached <- time.Now()
		p.reached = nil
	}
}

// wait waits until there are so many, and returns when there were.
func (p *population) wait(ctx context.Context, wanted int) (time.Time, error) {
	reached := make(chan time.Time, 1)
	p.mu.Lock()
	p.wanted, p.reached = wanted, reached
	p.tell()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case at := <-reached:
		return at, nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		return time.Time{}, fmt.Errorf("%d Machines are there instead of %d: %w", p.count, wanted, ctx.Err())
	}
}
