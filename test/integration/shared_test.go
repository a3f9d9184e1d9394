// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// shared is a stage that many tests use at the same time, with webhooks and loop. Each test creates objects with names of its own, see
// scene.own, and checks only them. A test that stops the program, or checks a whole API server or log, has a stage of its own.
var shared struct {
	set sync.Once
	*stage.Stage
	err error
}

// setShared sets up the shared stage, which runs until all tests have ended.
func setShared(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	lent, err := borrow(ctx, controlplane.Options{})
	if err != nil {
		return err
	}
	shared.Stage, err = stage.New(ctx, stage.Options{
		Program: program, Dir: filepath.Dir(program), On: lent.ControlPlane, FailClosed: true,
		Args: []string{taintGate + "enabled", "--no-execute-rate=12"}, // a rate for each Cluster, so that tests do not affect each other
	})
	return err
}

// endShared stops the shared stage if a test has used it.
func endShared() error {
	if shared.Stage == nil {
		return nil
	}
	err := shared.Stop()
	for _, fault := range tailOf(shared.HeirloomLog()).fromStart().faults() {
		err = errors.Join(err, fmt.Errorf("the log of the shared stage has %q", fault))
	}
	return err
}

// sharedScene returns a scene on the shared stage.
func sharedScene(t *testing.T) *scene {
	t.Helper()
	shared.set.Do(func() { shared.err = setShared(t.Context()) })
	if shared.err != nil {
		t.Fatalf("setting the shared stage: %v", shared.err)
	}
	log := tailOf(shared.HeirloomLog())
	t.Cleanup(func() { expectNoRace(t, log) })
	return &scene{
		WithT: gomega.NewWithT(t), t: t, ctx: t.Context(), dir: t.TempDir(), Stage: shared.Stage, audit: tailOf(shared.AuditLog),
	}
}

// names are the names that tests have requested.
var names sync.Map

// own returns a name that no other test has, nor the same test in another run. It begins with the given name.
func (s *scene) own(name string) string {
	unique := name
	for i := 2; ; i++ {
		if _, taken := names.LoadOrStore(unique, true); !taken {
			return unique
		}
		unique = fmt.Sprintf("%s-%d", name, i)
	}
}
