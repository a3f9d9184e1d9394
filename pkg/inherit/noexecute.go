// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Labels on a Cluster, or on a ClusterClass for all its Clusters, about taints that evict Pods.
const (
	// NoExecuteLabel says how Nodes in use get these taints: NoExecutePace, NoExecuteBudgets or NoExecutePaused.
	NoExecuteLabel = "heirloom.dev/no-execute"
	// NoExecuteRateLabel is the number of Nodes of the Cluster that get such a taint per minute, greater than 0.
	NoExecuteRateLabel = "heirloom.dev/no-execute-rate"
	// NoExecuteDeadlineLabel is the longest time that a Node waits for its Pods, such as 2h; 0s for no limit.
	NoExecuteDeadlineLabel = "heirloom.dev/no-execute-deadline"
	// WaveLabel is the number of the Cluster's wave. Clusters without it come last.
	WaveLabel = "heirloom.dev/wave"
)

// The values of NoExecuteLabel. Any other value counts as paused, because a mistyped label must not evict Pods.
const (
	NoExecutePace    = "pace"    // a Node gets the taint when it is its turn
	NoExecuteBudgets = "budgets" // a Node gets the taint when it is its turn, and its Pods have left
	NoExecutePaused  = "paused"  // no Node gets the taint
)

// LastWave is the wave of Clusters without WaveLabel.
const LastWave = math.MaxInt32

// PerCluster says which settings a Cluster may choose.
type PerCluster string

// The values of PerCluster. In every case, a Cluster may pause and choose its wave.
const (
	PerClusterNone    PerCluster = "none"    // no other setting
	PerClusterGentler PerCluster = "gentler" // settings that evict Pods more slowly than the settings of the installation
	PerClusterAny     PerCluster = "any"
)

// NoExecute says how Nodes in use get taints that evict Pods.
type NoExecute struct {
	// Budgets says that Pods leave a Node by eviction, as their disruption budgets allow, before it gets the taint. Deadline limits the time
	// for their leaving; 0 means no limit.
	Budgets  bool
	Deadline time.Duration
	// Rate is the number of Nodes of a Cluster that get the taint per minute; 0 means no limit.
	Rate float64
	// Clusters is the number of Clusters in which Nodes get taints at a time, or a percentage of all Clusters; at least 1. Soak is the time
	// for which a Cluster must have been done before another begins.
	Clusters intstr.IntOrString
	Soak     time.Duration
	// PerCluster says which of these settings a Cluster may choose.
	PerCluster PerCluster
}

// NoExecuteOf is how Nodes of a Cluster get taints that evict Pods.
type NoExecuteOf struct {
	Budgets  bool
	Deadline time.Duration
	Rate     float64
	Wave     int
	// Paused says that no Node gets the taint, By the label of which object, or for which reason.
	Paused bool
	By     string
}

// Limits reports whether a Node ever waits for its turn.
func (n NoExecute) Limits() bool {
	everywhere := n.Clusters == (intstr.IntOrString{}) || n.Clusters == intstr.FromString("100%")
	return n.Budgets || n.Rate > 0 || !everywhere || n.PerCluster == PerClusterGentler || n.PerCluster == PerClusterAny
}

// MostClusters returns the number of Clusters in which Nodes get taints at a time.
func (n NoExecute) MostClusters(all int) int {
	if n.Clusters == (intstr.IntOrString{}) { // the zero value is no limit
		return all
	}
	most, _ := intstr.GetScaledValueFromIntOrPercent(&n.Clusters, all, false) // it is validated
	return max(1, most)
}

// Of returns the settings of a Cluster. Both arguments may be nil. A label of the Cluster takes precedence over its class's, but a class
// that pauses, pauses all its Clusters. problems says which labels have no effect.
func (n NoExecute) Of(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass) (of NoExecuteOf, problems []string) {
	of = NoExecuteOf{Budgets: n.Budgets, Deadline: n.Deadline, Rate: n.Rate, Wave: LastWave}
	if class != nil {
		problems = of.read("ClusterClass", class, n)
	}
	if cluster != nil {
		problems = append(problems, of.read("Cluster", cluster, n)...)
	}
	return of, problems
}

// read takes the settings in the labels of an object that n allows.
func (of *NoExecuteOf) read(kind string, object metav1.Object, n NoExecute) (problems []string) {
	by := kind + " " + object.GetName()
	for _, label := range []struct {
		name string
		take func(value string, n NoExecute) (problem string)
	}{{NoExecuteLabel, of.takeHow(by)}, {NoExecuteRateLabel, of.takeRate}, {NoExecuteDeadlineLabel, of.takeDeadline}, {WaveLabel, of.takeWave}} {
		value, there := object.GetLabels()[label.name]
		if !there {
			continue
		}
		if problem := label.take(value, n); problem != "" {
			problems = append(problems, fmt.Sprintf("label %s of %s: %s", label.name, by, problem))
		}
	}
	return problems
}

func (of *NoExecuteOf) takeHow(by string) func(string, NoExecute) string {
	return func(how string, n NoExecute) string {
		switch {
		case how != NoExecutePace && how != NoExecuteBudgets:
			if of.Paused, of.By = true, by; how != NoExecutePaused {
				return fmt.Sprintf("%q counts as paused: must be pace, budgets or paused", how)
			}
		case !n.allows(how == NoExecuteBudgets || !n.Budgets):
			return n.forbids()
		default:
			of.Budgets = how == NoExecuteBudgets
		}
		return ""
	}
}

func (of *NoExecuteOf) takeRate(text string, n NoExecute) string {
	switch rate, err := strconv.ParseFloat(text, 64); {
	case err != nil || !(rate > 0) || math.IsInf(rate, 0):
		return fmt.Sprintf("%q is not a number of Nodes per minute, greater than 0", text)
	case !n.allows(n.Rate == 0 || rate <= n.Rate):
		return n.forbids()
	default:
		of.Rate = rate
	}
	return ""
}

func (of *NoExecuteOf) takeDeadline(text string, n NoExecute) string {
	switch deadline, err := time.ParseDuration(text); {
	case err != nil || deadline < 0:
		return fmt.Sprintf("%q is not a duration such as 2h", text)
	case !n.allows(deadline == 0 || n.Deadline > 0 && deadline >= n.Deadline):
		return n.forbids()
	default:
		of.Deadline = deadline
	}
	return ""
}

func (of *NoExecuteOf) takeWave(text string, _ NoExecute) string {
	wave, err := strconv.ParseInt(text, 10, 32)
	if err != nil || wave < 0 || wave >= LastWave {
		return fmt.Sprintf("%q is not a number, 0 or more", text)
	}
	of.Wave = int(wave)
	return ""
}

func (n NoExecute) forbids() string {
	return fmt.Sprintf("the operator does not allow it (--per-cluster-no-execute=%s)", n.PerCluster)
}

// noExecuteProblem returns what is wrong with the value of one of the labels, whatever the operator allows, or "".
func noExecuteProblem(label, value string) string {
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: value}}}
	if _, problems := (NoExecute{PerCluster: PerClusterAny}).Of(object, nil); len(problems) > 0 {
		return "is wrong: " + strings.SplitN(problems[0], ": ", 2)[1]
	}
	return ""
}

// allows reports whether a Cluster may choose a setting, which is gentler than the installation's or not.
func (n NoExecute) allows(gentler bool) bool {
	return n.PerCluster == PerClusterAny || n.PerCluster == PerClusterGentler && gentler
}
