// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchedParameters is a policy that matches no resource. When the last policy with parameters of a kind is deleted, Kubernetes v1.36 stops
// watching that kind and never starts again, so the policies of the next test would have no effect.
//
//go:embed watched-parameters.yaml
var watchedParameters string

// Pool lends control planes to one test after the other: starting a control plane takes much longer than wiping it. The zero value is
// an empty pool. It is safe for concurrent use.
type Pool struct {
	mu  sync.Mutex
	all []*Lent
}

// Lent is a control plane that belongs to its borrower until GiveBack. Its audit log has the requests of earlier borrowers also.
type Lent struct {
	*ControlPlane
	pool *Pool
	kind string // the same for equal control planes
	free bool
}

// Lend returns an empty control plane with these programs, CRDs and flags. It starts a control plane only if no free control plane has
// them.
func (p *Pool) Lend(ctx context.Context, options Options) (*Lent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := fmt.Sprint(options.Assets, options.CRDPaths, options.APIServerArgs)
	for _, l := range p.all {
		if l.free && l.kind == kind {
			l.free = false
			return l, nil
		}
	}
	cp, err := Start(ctx, options)
	if err != nil {
		return nil, err
	}
	l := &Lent{ControlPlane: cp, pool: p, kind: kind}
	p.all = append(p.all, l)
	return l, l.watchParameters(ctx)
}

func (l *Lent) watchParameters(ctx context.Context) error {
	if !l.ServesAdmissionPolicies() {
		return nil
	}
	c, err := client.New(l.AdminConfig(), client.Options{})
	if err != nil {
		return err
	}
	objects, err := DecodeObjects(watchedParameters)
	if err != nil {
		return err
	}
	return errors.Join(Apply(ctx, c, objects), l.remember())
}

// GiveBack deletes all objects in the control plane, so that another test can use it.
func (l *Lent) GiveBack(ctx context.Context) error {
	if err := l.Wipe(ctx); err != nil {
		return fmt.Errorf("a control plane cannot be used again: %w", err)
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.free = true
	return nil
}

// Stop stops all control planes, including control planes that were not given back, and returns their number.
func (p *Pool) Stop() (count int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, l := range p.all {
		errs = append(errs, l.Stop())
	}
	count, p.all = len(p.all), nil
	return count, errors.Join(errs...)
}
