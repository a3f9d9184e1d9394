// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// Schedule is all that a run depends on: a run of the same schedule repeats itself.
type Schedule struct {
	// Finds says which fault of the past the schedule has found.
	Finds string `json:"finds,omitempty"`
	// Seed decides every order: of steps, of goroutines and of maps.
	Seed    uint64   `json:"seed"`
	Options Options  `json:"options"`
	Actions []Action `json:"actions"`
}

// Options are the properties of a world.
type Options struct {
	// TypedTaints says what Cluster API does with spec.taints of Machines: "propagates", "ignores" or "refuses".
	TypedTaints string `json:"typedTaints"`
	// TwoSets adds a second MachineDeployment to each Cluster.
	TwoSets bool `json:"twoSets,omitempty"`
	// ControlPlanes adds a control plane with Machines to each Cluster.
	ControlPlanes bool `json:"controlPlanes,omitempty"`
	// Topologies gives each Cluster a ClusterClass, from which Cluster API makes a MachineDeployment and the control plane.
	Topologies bool `json:"topologies,omitempty"`
	// Pools adds a MachinePool without Machines to each Cluster.
	Pools bool `json:"pools,omitempty"`
	// StartupTaints is a world whose operators declare taints for the start of Nodes.
	StartupTaints bool `json:"startupTaints,omitempty"`
	// Facts makes the instance types of FakeMachines labels of their Nodes.
	Facts bool `json:"facts,omitempty"`
	// Older begins with a Cluster that an older version of Heirloom has left, and with no other kinds of sets.
	Older bool `json:"older,omitempty"`
	// Budgets adds Pods that must leave their Node before it gets a taint that evicts them.
	Budgets bool `json:"budgets,omitempty"`
	// Waves lets Nodes get taints that evict Pods in one Cluster at a time.
	Waves bool `json:"waves,omitempty"`
	// Resync makes Heirloom reconcile everything every few minutes. Otherwise no resync hides a missing event.
	Resync bool `json:"resync,omitempty"`
	// Unguarded is a workload cluster without the admission plugin NodeRestriction.
	Unguarded bool `json:"unguarded,omitempty"`
	// Labeled leaves Clusters without the label heirloom.dev/mode alone.
	Labeled bool `json:"labeled,omitempty"`
}

// What Cluster API does with typed taints.
const propagatesTaints, ignoresTaints, refusesTaints = "propagates", "ignores", "refuses"

// Action is an action of a participant, or a fault.
type Action struct {
	// After is the time since the previous action.
	After metav1.Duration `json:"after"`
	// What is a key of kinds.
	What string `json:"what"`
	// Who is the set, Cluster or program that the action concerns. N chooses among its objects.
	Who string `json:"who,omitempty"`
	N   int    `json:"number,omitempty"`
	// Key is what a declaration or a write is about.
	Key   string `json:"key,omitempty"`
	Value string `json:"value,omitempty"`
	// Lasts is the duration of a fault.
	Lasts metav1.Duration `json:"lasts,omitzero"`
}

func (a Action) String() string {
	parts := []string{fmt.Sprintf("+%-7s", a.After.Duration), a.What}
	if a.Who != "" {
		parts = append(parts, "of "+a.Who)
	}
	if a.N != 0 {
		parts = append(parts, fmt.Sprint("no. ", a.N))
	}
	if a.Key != "" {
		parts = append(parts, a.Key)
	}
	if a.Value != "" {
		parts = append(parts, "= "+a.Value)
	}
	if a.Lasts.Duration > 0 {
		parts = append(parts, "for "+a.Lasts.Duration.String())
	}
	return strings.Join(parts, " ")
}

// GoString is what rapid prints.
func (a Action) GoString() string { return a.String() }

// draws has the draws of the parts of actions. It shrinks towards the first of several values.
type draws struct {
	*rapid.T
	Options
	// about is the Cluster that most actions concern, so that they happen together there.
	about int
}

// drawn draws the schedule of a seed.
func drawn(t *rapid.T, seed uint64) Schedule {
	d := draws{T: t}
	d.Options = Options{
		TypedTaints: d.oneOf(propagatesTaints, propagatesTaints, ignoresTaints, refusesTaints), TwoSets: d.below(2) == 1, Resync: d.below(2) == 1,
		Unguarded: d.below(4) == 3, Labeled: d.below(4) == 3,
	}
	d.ControlPlanes, d.Pools, d.Topologies = d.below(2) == 1, d.below(3) == 2, d.below(3) == 2
	d.StartupTaints, d.Facts, d.Budgets = d.below(2) == 1, d.below(3) == 2, d.below(3) == 2
	d.Waves = d.below(2) == 1
	if d.below(8) == 7 {
		d.Options = Options{TypedTaints: propagatesTaints, Older: true, Resync: d.Resync, Unguarded: d.Unguarded}
	}
	d.about = d.below(clusters)
	var names []string
	for name, k := range kinds() {
		for range k.weight {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	action := rapid.Custom(func(t *rapid.T) Action {
		d := d
		d.T = t
		what := d.oneOf(names...)
		a := kinds()[what].draw(d)
		a.What = what
		a.After = metav1.Duration{Duration: time.Duration(d.below(12_000)) * time.Millisecond}
		return a
	})
	return Schedule{Seed: seed, Options: d.Options, Actions: rapid.SliceOfN(action, fewest, most).Draw(t, "actions")}
}

// oneOf draws one of the values.
func (d draws) oneOf(values ...string) string { return values[d.below(len(values))] }

// below draws a number from 0 to n-1. rapid's own ranges prefer small numbers, also among kinds of actions.
func (d draws) below(n int) int {
	drawn := 0
	for range bits.Len(uint(n-1)) + 3 {
		drawn *= 2
		if rapid.Bool().Draw(d.T, "bit") {
			drawn++
		}
	}
	return drawn % n
}

// cluster draws the name of a Cluster.
func (d draws) cluster() string {
	about := nameOf(d.about)
	return d.oneOf(about, about, about, nameOf(1-d.about))
}

// set draws the name of a set of Machines.
func (d draws) set() string {
	cluster := d.cluster()
	return d.oneOf(setsOf(cluster, d.Options)...)
}

// replica draws the name of a replica of Heirloom.
func (d draws) replica() string { return d.oneOf(heirloomUser+"-0", heirloomUser+"-1") }

// seconds draws a duration.
func (d draws) seconds(most int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(1+d.below(most)) * time.Second}
}

// read reads a schedule from a file.
func read(path string) (s Schedule, err error) {
	content, err := os.ReadFile(path)
	if err == nil {
		err = yaml.UnmarshalStrict(content, &s)
	}
	for _, a := range s.Actions {
		if _, known := kinds()[a.What]; err == nil && !known {
			err = fmt.Errorf("there is no action %q", a.What)
		}
	}
	if err != nil {
		return s, fmt.Errorf("reading the schedule %s: %w", path, err)
	}
	return s, nil
}

// file returns the schedule as a file.
func (s Schedule) file() string {
	content, err := yaml.Marshal(s)
	if err != nil {
		panic(err) // a Schedule can be encoded
	}
	return string(content)
}
