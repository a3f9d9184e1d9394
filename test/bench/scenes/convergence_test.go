// SPDX-License-Identifier: Apache-2.0

package scenes

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// change is something that a MachineDeployment declares from now on, or no longer.
type change struct {
	step string
	// deployment, machine and node are merge patches: of the MachineDeployment, from which others make the rest, and of what the
	// floor writes itself.
	deployment, machine, node []byte
	looks                     func(*corev1.Node) bool
}

// labels are the changes of a label.
func labels() []change {
	const key = "node.cluster.x-k8s.io/changes"
	of := func(step, value string, looks func(*corev1.Node) bool) change {
		labels := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
		return change{
			step: step, machine: []byte(labels), node: []byte(labels), looks: looks,
			deployment: fmt.Appendf(nil, `{"spec":{"template":%s}}`, labels),
		}
	}
	has := func(node *corev1.Node) bool { return node.Labels[key] == "yes" }
	return []change{
		of("added", `"yes"`, has),
		of("removed", "null", func(node *corev1.Node) bool { return !has(node) }),
	}
}

// converging are fleets of one size in all worlds.
type converging struct {
	*scenes
	size   int
	fleets []*fleet // alone, and with Heirloom
	// names are those of the Machines and Nodes, for each fleet and the floor.
	names map[string][]string
	round int
}

// benchmarkConvergence measures how long it takes until a change of a MachineDeployment has reached all Nodes.
func benchmarkConvergence(b *testing.B, s *scenes, sizes []int) {
	b.Helper()
	for _, size := range sizes {
		c, err := s.converge(b.Context(), size)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("label/nodes=%d", size), func(b *testing.B) { c.benchmark(b, labels()) })
	}
}

// converge makes the fleets, all at once: nothing is measured yet.
func (s *scenes) converge(ctx context.Context, size int) (*converging, error) {
	tell("convergence: making %d Machines with Nodes in each world", size)
	c := &converging{scenes: s, size: size, fleets: make([]*fleet, 2), names: map[string][]string{}}
	for _, name := range []string{floorNodes, floorBoth} {
		for i := range size {
			c.names[name] = append(c.names[name], fmt.Sprintf("%s-%d-%d", name, size, i))
		}
	}
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
	if err := s.floor.add(ctx, slices.Concat(c.names[floorNodes], c.names[floorBoth]), declared()); err != nil {
		return nil, err
	}
	return c, s.rest(ctx)
}

// benchmark measures changes in all worlds, one world after the other.
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

// measure measures one change in all worlds.
func (c *converging) measure(ctx context.Context, r results, change change) error {
	in := map[string]measured{}
	for _, f := range inTurn(c.fleets, c.round) {
		m, err := c.follow(ctx, f, change)
		if err != nil {
			return fmt.Errorf("world %s, %s: %w", f.name, change.step, err)
		}
		c.tell(change, f.name, m.took)
		in[f.name] = m
	}
	alone, with := in["alone"], in["with"]
	r.compare(change.step, alone, with)
	for _, name := range []string{floorNodes, floorBoth} {
		took, err := c.floor.write(ctx, c.names[name], change, name == floorBoth)
		if err != nil {
			return err
		}
		c.tell(change, name, took)
		r.add(took.Seconds(), change.step, name, "sec")
		r.ratio(alone.took.Seconds(), took.Seconds(), change.step, "alone-sec×"+name)
		r.ratio(with.took.Seconds(), took.Seconds(), change.step, "with-sec×"+name)
	}
	return nil
}

func (c *converging) tell(change change, variant string, took time.Duration) {
	tell("convergence, %d Nodes, round %d, %s, %s: %s", c.size, c.round, change.step, variant, took.Round(time.Millisecond))
}

// follow changes a MachineDeployment and measures until all its Nodes look so.
func (c *converging) follow(ctx context.Context, f *fleet, change change) (measured, error) {
	expected, err := f.nodes.expect(c.names[f.name], change.looks)
	if err != nil {
		return measured{}, err
	}
	return f.measure(ctx, func(ctx context.Context) (time.Time, error) {
		if err := f.patch(ctx, change.deployment); err != nil {
			return time.Time{}, err
		}
		_, last, err := f.nodes.wait(ctx, expected)
		return last, err
	})
}
