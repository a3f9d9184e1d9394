// SPDX-License-Identifier: Apache-2.0

// Package status says how far the roll-outs of taints that evict Pods are, and why a roll-out does not go on.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Status is the answer.
type Status struct {
	metav1.TypeMeta `json:",inline"`

	Rollouts []Rollout `json:"rollouts"`
	// Notes are sentences about the whole answer.
	Notes []string `json:"notes,omitempty"`

	asked  int      // the number of Clusters
	doubts []string // the notes about this answer
}

// State is the state of a roll-out.
type State string

// The states of a roll-out.
const (
	// Done says that no Node waits. The Cluster keeps its place for a while.
	Done State = "Done"
	// Running says that Nodes have their turn.
	Running State = "Running"
	// Waiting says that no Node may have its turn because of other Clusters.
	Waiting State = "Waiting"
	// HeldUp says that a PodDisruptionBudget keeps a Pod on a Node.
	HeldUp State = "HeldUp"
	// Halted says that Pods have become unschedulable, or that Nodes have stopped being ready.
	Halted State = "Halted"
	// Paused says that a label pauses the roll-out.
	Paused State = "Paused"
	// None says that there is no roll-out.
	None State = "None"
	// Unknown says that the Cluster, its Nodes or its Pods could not be read.
	Unknown State = "Unknown"
)

var styles = map[State]cli.Style{Done: cli.Good, Running: cli.Good, HeldUp: cli.Bad, Halted: cli.Bad, Unknown: cli.Bad, Paused: cli.Warn}

// Rollout is the roll-out in a Cluster.
type Rollout struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Wave is missing for a Cluster without a wave, which comes last.
	Wave  *int  `json:"wave,omitempty"`
	State State `json:"state"`
	// Nodes counts the Nodes of the roll-out. Done, Waiting and HeldUp are parts of it.
	Nodes   int `json:"nodes"`
	Done    int `json:"done"`
	Waiting int `json:"waiting"`
	HeldUp  int `json:"heldUp"`
	// SecondsLeft is the time until the last Node has its turn. It is missing if it is unknown.
	SecondsLeft *int64 `json:"secondsLeft,omitempty"`
	Reason      string `json:"reason,omitempty"`
	// Began is the time of the first turn of a Node, Rate the number of Nodes per minute, 0 for no limit, and Mode pace or budgets.
	Began *metav1.Time `json:"began,omitempty"`
	Rate  float64      `json:"rate"`
	Mode  string       `json:"mode"`
	Error string       `json:"error,omitempty"`
}

func (r *Rollout) of() string { return r.Namespace + "/" + r.Cluster }

// eta returns the time until the last Node has its turn, for people.
func (r *Rollout) eta() string {
	switch {
	case slices.Contains([]State{Done, None}, r.State):
		return ""
	case r.SecondsLeft == nil:
		return "unknown"
	}
	return duration.HumanDuration(time.Duration(*r.SecondsLeft) * time.Second)
}

// Line describes the roll-out for people, without the time until its end, which changes all the time.
func (r *Rollout) Line() string {
	line := fmt.Sprintf("%s %s", r.of(), r.State)
	if r.Nodes > 0 {
		line += fmt.Sprintf(": %d/%d Nodes done, %d waiting, %d held up", r.Done, r.Nodes, r.Waiting, r.HeldUp)
	}
	if r.Reason != "" {
		line += ": " + r.Reason
	}
	return line
}

// Over reports whether every roll-out is done.
func (s *Status) Over() bool {
	return !slices.ContainsFunc(s.Rollouts, func(r Rollout) bool { return r.State != Done && r.State != None })
}

// Unread reports whether anything could not be read.
func (s *Status) Unread() bool {
	return slices.ContainsFunc(s.Rollouts, func(r Rollout) bool { return r.Error != "" })
}

// Names implements cli.Named.
func (s *Status) Names() (names []string) {
	for i := range s.Rollouts {
		names = append(names, cli.NameOf(clusterv1.GroupVersion.WithKind("Cluster").GroupKind(), s.Rollouts[i].Cluster))
	}
	return names
}

// Table implements cli.Result.
func (s *Status) Table(wide bool) *metav1.Table {
	columns := []string{"namespace", "cluster", "wave", "state", "nodes done", "waiting", "held up", "eta", "reason"}
	if wide {
		columns = append(columns, "began", "nodes per minute", "mode")
	}
	t := &metav1.Table{}
	for _, column := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: column, Type: "string"})
	}
	for i := range s.Rollouts {
		r := &s.Rollouts[i]
		wave, began := "last", ""
		if r.Wave != nil {
			wave = strconv.Itoa(*r.Wave)
		}
		if r.Began != nil {
			began = r.Began.UTC().Format(time.RFC3339)
		}
		done, waiting, heldUp := "", "", ""
		if r.Nodes > 0 {
			done, waiting, heldUp = fmt.Sprintf("%d/%d", r.Done, r.Nodes), strconv.Itoa(r.Waiting), strconv.Itoa(r.HeldUp)
		}
		cells := []any{
			r.Namespace, r.Cluster, wave, cli.Cell{Style: styles[r.State], Text: string(r.State)}, done, waiting, heldUp, r.eta(), cmp.Or(r.Reason, r.Error),
		}
		if wide {
			cells = append(cells, began, fmt.Sprint(r.Rate), r.Mode)
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	return t
}

// next says for people what to do in a state.
var next = []struct {
	State
	text string
}{
	{HeldUp, "A roll-out that is held up goes on when the Pod may leave: add a replica, change the PodDisruptionBudget, or delete the Pod."},
	{Halted, "A halted roll-out goes on when the Pods are scheduled and the Nodes are ready. To take the taint back, remove its declaration."},
	{Paused, "A paused roll-out goes on without the label: kubectl label (cluster | clusterclass) NAME " + inherit.NoExecuteLabel + "-"},
	{Waiting, "A roll-out that waits begins by itself. The label " + inherit.WaveLabel + " changes the order of the Clusters."},
}

// Sentences says for people what to do.
func (s *Status) Sentences() (all []string) {
	if len(s.Rollouts) == 0 {
		all = append(all, "No roll-out of NoExecute taints ("+cli.Count(s.asked, "Cluster")+").")
	}
	for _, advice := range next {
		if slices.ContainsFunc(s.Rollouts, func(r Rollout) bool { return r.State == advice.State }) {
			all = append(all, advice.text)
		}
	}
	for i := range s.Rollouts {
		if r := &s.Rollouts[i]; r.Error != "" && r.State != Unknown {
			all = append(all, r.of()+": "+r.Error)
		}
	}
	for _, doubt := range s.doubts {
		all = append(all, "Note: "+doubt)
	}
	return all
}
