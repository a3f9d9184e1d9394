// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// change is an entry that a MachineDeployment begins or ceases to declare.
type change struct {
	step string
	// deployment is a merge patch of the MachineDeployment.
	deployment []byte
	looks      func(*corev1.Node) bool
	// byHeirloom says that Cluster API alone does not propagate the change to Nodes.
	byHeirloom bool
}

// labels returns the changes of a label.
func labels() []change {
	const key = "node.cluster.x-k8s.io/changes"
	of := func(step, value string, looks func(*corev1.Node) bool) change {
		labels := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
		return change{
			step: step, looks: looks, deployment: fmt.Appendf(nil, `{"spec":{"template":%s}}`, labels),
		}
	}
	has := func(node *corev1.Node) bool { return node.Labels[key] == "yes" }
	return []change{
		of("added", `"yes"`, has),
		of("removed", "null", func(node *corev1.Node) bool { return !has(node) }),
	}
}

// changing is the key of the taint that is added and removed.
const changing = "changes"

// taints returns the changes of a taint: of a typed taint, which Cluster API propagates if its gate is on, or of an annotated taint.
func taints(typed bool) []change {
	of := func(step, template string, looks func(*corev1.Node) bool) change {
		return change{step: step, byHeirloom: !typed, looks: looks, deployment: fmt.Appendf(nil, `{"spec":{"template":%s}}`, template)}
	}
	has := func(node *corev1.Node) bool {
		return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == changing })
	}
	hasNot := func(node *corev1.Node) bool { return !has(node) }
	if typed {
		always := fmt.Sprintf(`[{"key":%q,"value":"yes","effect":"NoSchedule","propagation":"Always"}]`, changing)
		return []change{
			of("added", fmt.Sprintf(`{"spec":{"taints":%s}}`, always), has),
			of("removed", `{"spec":{"taints":null}}`, hasNot),
		}
	}
	before := declared().Annotations[taint.AlwaysAnnotation]
	annotated := func(value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, taint.AlwaysAnnotation, value)
	}
	return []change{
		of("added", annotated(before+","+changing+"=yes:NoSchedule"), has),
		of("removed", annotated(before), hasNot),
	}
}

// converging has the fleets of one size in both worlds.
type converging struct {
	*scenes
	size   int
	fleets []*fleet // alone, and with Heirloom
	// names are the names of Machines and Nodes, by fleet.
	names map[string][]string
	round int
}

// benchmarkConvergence measures the time until a change of a MachineDeployment has reached all Nodes.
func benchmarkConvergence(b *testing.B, s *scenes, sizes []int) {
	b.Helper()
	for _, size := range sizes {
		c, err := s.converge(b.Context(), size)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("label/nodes=%d", size), func(b *testing.B) { c.benchmark(b, labels()) })
		b.Run(fmt.Sprintf("taint/nodes=%d", size), func(b *testing.B) { c.benchmark(b, taints(false)) })
	}
}

// benchmarkTyped measures the same for a typed taint, with Cluster API's gate MachineTaintPropagation on. It comes last, so that the
// other benchmarks measure Cluster API with its default gates.
func benchmarkTyped(b *testing.B, s *scenes, sizes []int) {
	b.Helper()
	for _, size := range sizes {
		if _, err := s.converge(b.Context(), size); err != nil {
			b.Fatal(err)
		}
	}
	tell("switching MachineTaintPropagation on")
	err := s.both(b.Context(), func(ctx context.Context, _ int, w *world) error {
		if err := w.managers.Switch(b.Context(), true); err != nil { // the managers outlive ctx
			return err
		}
		return w.settle(ctx)
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range sizes {
		b.Run(fmt.Sprintf("typed-taint/nodes=%d", size), func(b *testing.B) { s.converging[size].benchmark(b, taints(true)) })
	}
}

// converge creates the fleets, all at the same time, because nothing is measured yet. Later calls return the same fleets.
func (s *scenes) converge(ctx context.Context, size int) (*converging, error) {
	if s.converging[size] != nil {
		return s.converging[size], nil
	}
	tell("convergence: making %d Machines with Nodes in each world", size)
	c := &converging{scenes: s, size: size, fleets: make([]*fleet, 2), names: map[string][]string{}}
	made := make([][]string, 2)
	err := s.both(ctx, func(ctx context.Context, i int, w *world) (err error) {
		if c.fleets[i], err = w.addFleet(ctx, fmt.Sprintf("converging-%d", size)); err == nil {
			made[i], err = c.fleets[i].populate(ctx, size)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, f := range c.fleets {
		c.names[f.name] = made[i]
	}
	s.converging[size] = c
	return c, s.rest(ctx)
}

// benchmark measures changes in both worlds, one world after the other.
func (c *converging) benchmark(b *testing.B, changes []change) {
	r := results{}
	for range b.N {
		c.round++
		for _, change := range changes {
			if err := c.measure(b.Context(), r, change); err != nil {
				b.Fatal(err)
			}
		}
	}
	r.report(b)
}

// measure measures one change in both worlds.
func (c *converging) measure(ctx context.Context, r results, change change) error {
	in := map[string]measured{}
	for _, f := range inTurn(c.fleets, c.round) {
		if change.byHeirloom && !f.heirloom {
			continue
		}
		m, err := c.follow(ctx, f, change)
		if err != nil {
			return fmt.Errorf("world %s, %s: %w", f.name, change.step, err)
		}
		c.tell(change, f.name, m.took)
		in[f.name] = m
	}
	r.compare(change.step, in)
	return nil
}

func (c *converging) tell(change change, variant string, took time.Duration) {
	tell("convergence, %d Nodes, round %d, %s, %s: %s", c.size, c.round, change.step, variant, took.Round(time.Millisecond))
}

// follow changes a MachineDeployment and measures the time until all its Nodes look as expected.
func (c *converging) follow(ctx context.Context, f *fleet, change change) (measured, error) {
	if err := f.nodes.none(c.names[f.name], change.looks); err != nil {
		return measured{}, err
	}
	return f.measure(ctx, func(ctx context.Context) (time.Time, error) {
		if err := f.patch(ctx, change.deployment); err != nil {
			return time.Time{}, err
		}
		_, err := f.nodes.wait(ctx, c.names[f.name], change.looks)
		return time.Now(), err
	})
}
