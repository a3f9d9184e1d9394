// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Pool lends control planes to one test after the other: starting a control plane takes much longer than wiping it. The zero value is
// an empty pool. It is safe for concurrent use.
type Pool struct {
	mu   sync.Mutex
	free map[string][]*Lent
	all  []*Lent
}

// Lent is a control plane that belongs to its borrower until GiveBack.
type Lent struct {
	*ControlPlane
	// AuditLog is a file to which the API server writes one line of JSON per request. It has the lines of earlier tests also.
	AuditLog string

	pool     *Pool
	kind, of string // the key of equal control planes, and the directory of the logs
}

// Lend returns an empty control plane with these programs, CRDs and flags. It starts a control plane only if no free control plane has
// them. The pool chooses the directory of the logs.
func (p *Pool) Lend(ctx context.Context, options Options) (*Lent, error) {
	kind := fmt.Sprint(options.Assets, options.CRDPaths, options.APIServerArgs)
	if free := p.take(kind); free != nil {
		return free, nil
	}
	dir, err := TempDir("lent")
	if err != nil {
		return nil, err
	}
	l := &Lent{pool: p, kind: kind, of: dir, AuditLog: filepath.Join(dir, "audit.log")}
	options.LogDir, options.AuditLog = dir, l.AuditLog
	if l.ControlPlane, err = Start(ctx, options); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := l.keepParameters(ctx); err != nil {
		return nil, errors.Join(err, l.Stop(), os.RemoveAll(dir))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, l)
	return l, nil
}

func (p *Pool) take(kind string) *Lent {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.free[kind]
	if len(free) == 0 {
		return nil
	}
	p.free[kind] = free[:len(free)-1]
	return free[len(free)-1]
}

// GiveBack deletes all objects in the control plane, so that another test can use it.
func (l *Lent) GiveBack(ctx context.Context) error {
	if err := l.Wipe(ctx); err != nil {
		return fmt.Errorf("a control plane cannot be used again: %w", err)
	}
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.pool.free == nil {
		l.pool.free = map[string][]*Lent{}
	}
	l.pool.free[l.kind] = append(l.pool.free[l.kind], l)
	return nil
}

// Stop stops all control planes, including control planes that were not given back, and returns their number.
func (p *Pool) Stop() (count int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, l := range p.all {
		errs = append(errs, l.Stop(), os.RemoveAll(l.of))
	}
	count, p.all, p.free = len(p.all), nil, nil
	return count, errors.Join(errs...)
}
