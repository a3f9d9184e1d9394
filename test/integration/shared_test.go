// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// sharedStage is a stage that many tests use side by side. Whatever they make has names of their own, see scene.own, and they look at
// nothing else. A test that stops the program, or that looks at the whole of an API server, a log or the metrics, has a stage of
// its own.
type sharedStage struct {
	name    string
	options stage.Options

	set sync.Once
	*stage.Stage
	lent *controlplane.Lent
	dir  string
	err  error
}

var (
	// both has webhooks and loop.
	both = &sharedStage{name: "both", options: stage.Options{
		FailClosed: true,
		Args:       []string{"--no-execute-rate=12"}, // of each Cluster, so that it matters to no other test
	}}
	// admission has webhooks only.
	admission = &sharedStage{name: "admission", options: stage.Options{WithoutLoop: true, FailClosed: true, Args: ofTwins()}}
	// loop is as admission, but for what brings things.
	loop = &sharedStage{name: "loop", options: stage.Options{WithoutWebhooks: true, Args: ofTwins()}}
)

// ofTwins are arguments of stages that are compared.
func ofTwins() []string {
	// Said outright: finding out takes a moment, and the answer rightly leads to one more write.
	// Nor do taints come when it is their turn: another test is about that.
	return []string{taintGate + "enabled", "--no-execute-rate=0", `--additional-sync-machine-labels=^extra\.example\.com/`}
}

// start sets the stage. It lasts until all tests have ended.
func (s *sharedStage) start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	if s.lent, err = borrow(ctx, controlplane.Options{}); err != nil {
		return err
	}
	if s.dir, err = controlplane.TempDir("stage-" + s.name); err != nil {
		return err
	}
	all := s.options
	all.Program, all.Dir, all.On = program, s.dir, s.lent.ControlPlane
	s.Stage, err = stage.New(ctx, all)
	return err
}

// end stops the stage, if any test has used it.
func (s *sharedStage) end() error {
	if s.Stage == nil {
		return nil
	}
	err := s.Stop()
	if err != nil {
		err = fmt.Errorf("stopping stage %s: %w", s.name, err)
	}
	for _, fault := range tailOf(s.HeirloomLog()).fromStart().faults() {
		err = errors.Join(err, fmt.Errorf("the log of stage %s has %q", s.name, fault))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// sharedScene is a scene on a stage that others use as well.
func sharedScene(t *testing.T, on *sharedStage) *scene {
	t.Helper()
	s := emptyScene(t)
	on.set.Do(func() { on.err = on.start(s.ctx) })
	if on.err != nil {
		t.Fatalf("setting stage %s: %v", on.name, on.err)
	}
	s.Stage, s.audit = on.Stage, tailOf(on.lent.AuditLog)
	log := tailOf(on.HeirloomLog())
	t.Cleanup(func() {
		if t.Failed() {
			showLog(t, log)
		}
		expectNoRace(t, log)
	})
	return s
}

// names are those that tests have asked for.
var names struct {
	sync.Mutex
	taken map[string]int
}

// own returns a name that no other test has, nor the same test when it runs again. It begins with the one that is asked for.
func (s *scene) own(name string) string {
	names.Lock()
	defer names.Unlock()
	if names.taken == nil {
		names.taken = map[string]int{}
	}
	names.taken[name]++
	if count := names.taken[name]; count > 1 {
		return fmt.Sprintf("%s-%d", name, count)
	}
	return name
}
