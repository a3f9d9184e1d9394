// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// report collects what has been done. It is safe for concurrent use.
type report struct {
	dryRun bool

	mu            sync.Mutex
	out, progress io.Writer
	failures      []error
}

// did says that an object has been written, or would have been; details are what changes in it.
func (r *report) did(verb string, kind schema.GroupKind, object client.Object, where string, details ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := strings.ToLower(kind.String()) + "/" + object.GetName() + " " + verb
	if namespace := object.GetNamespace(); namespace != "" {
		line += " in namespace " + namespace
	}
	line += where
	if r.dryRun {
		line += " (dry run)"
	}
	_, _ = fmt.Fprintln(r.out, line) // if it fails, the reader is gone
	for _, detail := range details {
		_, _ = fmt.Fprintln(r.out, "  "+detail)
	}
}

// note reports progress to a person.
func (r *report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.progress, format+"\n", args...)
}

// failed remembers what could not be done.
func (r *report) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, err)
}

func (r *report) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.failures...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("not everything could be released; run it again once this is mended:\n%w", err)
}

// reporting is a client that reports what it deletes, and deletes nothing in a dry run.
type reporting struct {
	client.Client
	report *report
	// where says in which cluster, as a part of a sentence.
	where string
}

func (s *session) reporting(c client.Client, where string) reporting {
	return reporting{Client: c, report: s.report, where: where}
}

// Delete implements client.Client. It skips an object that is already being deleted.
func (c reporting) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	gvk, err := c.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", object, err)
	}
	if !c.report.dryRun {
		if err := c.Client.Delete(ctx, object, options...); err != nil {
			return err
		}
	}
	c.report.did("deleted", gvk.GroupKind(), object, c.where)
	return nil
}
