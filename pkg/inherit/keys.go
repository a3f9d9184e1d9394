// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// AdmissionLabel on a Cluster says how its Nodes are admitted. The default is --workload-admission.
const AdmissionLabel = "heirloom.dev/workload-admission"

// The ways to admit the Nodes of workload clusters: values of AdmissionLabel and of --workload-admission.
const (
	// AdmitAutomatically leaves the choice to Heirloom: by policy if the workload cluster supports it, otherwise by webhook if
	// --workload-webhook-url is set, otherwise by the loop.
	AdmitAutomatically = "auto"
	// AdmitByLoop sets up nothing in admission: the loop applies the inherited entries.
	AdmitByLoop    = "none"
	AdmitByPolicy  = "policy"
	AdmitByWebhook = "webhook"
)

// key is a label or an annotation by which users tell Heirloom something.
type key struct {
	what, name string
	counts     func(taint.Place) bool
	where      string   // ends the sentence "it has effect only"
	values     []string // nil: any
	otherwise  string   // the value as which any other value counts
	// problem returns what is wrong with a value, or "". It may be nil.
	problem func(name, value string) string
}

//nolint:gochecknoglobals // tables that nothing changes
var (
	// Admissions are the values of AdmissionLabel.
	Admissions = []string{AdmitAutomatically, AdmitByLoop, AdmitByPolicy, AdmitByWebhook}

	keyTable = []key{
		{what: labelKey, name: IgnoreLabel, counts: inherits, where: "on objects that inherit, on a Cluster, and in templates of Machines", problem: ignoreProblem},
		{what: labelKey, name: ModeLabel, counts: of("Cluster", "ClusterClass"), where: ofClusters, values: []string{string(Enforce), string(Observe)}, otherwise: string(Observe)},
		{what: labelKey, name: AdmissionLabel, counts: of("Cluster"), where: "in metadata.labels of a Cluster", values: Admissions, otherwise: AdmitByLoop},
		{what: labelKey, name: NoExecuteLabel, counts: of("Cluster", "ClusterClass"), where: ofClusters, problem: noExecuteProblem},
		{what: labelKey, name: NoExecuteRateLabel, counts: of("Cluster", "ClusterClass"), where: ofClusters, problem: noExecuteProblem},
		{what: labelKey, name: NoExecuteDeadlineLabel, counts: of("Cluster", "ClusterClass"), where: ofClusters, problem: noExecuteProblem},
		{what: labelKey, name: WaveLabel, counts: of("Cluster", "ClusterClass"), where: ofClusters, problem: noExecuteProblem},
		{what: annotationKey, name: SyncLabelsAnnotation, counts: of("Cluster", "ClusterClass"), where: ofClusters},
		{what: annotationKey, name: SyncAnnotationsAnnotation, counts: of("Cluster", "ClusterClass"), where: ofClusters},
		{what: annotationKey, name: taint.AlwaysAnnotation, counts: machines, where: ofMachines},
		{what: annotationKey, name: taint.InitializeAnnotation, counts: machines, where: ofMachines},
		{what: annotationKey, name: taint.UntilAnnotation, counts: machines, where: ofMachines},
	}
	// recordKeys are keys that Heirloom itself writes. They may be in a copy of an object, where they do no harm.
	recordKeys = []string{
		LabelsFromMachineAnnotation, AnnotationsFromMachineAnnotation, TaintsFromMachineAnnotation, RecordAnnotation, UninitializedAnnotation, MatchedByAddressAnnotation,
	}
)

// The places in which keys count, as sentences say it.
const (
	ofClusters = "in metadata of a Cluster or a ClusterClass"
	ofMachines = "on a Machine, in a template of Machines (spec.template.metadata or spec.machineTemplate.metadata), and in a section of a topology or a ClusterClass"
)

func of(kinds ...string) func(taint.Place) bool {
	return func(at taint.Place) bool { return !at.ForMachines && slices.Contains(kinds, at.Kind) }
}

func machines(at taint.Place) bool { return at.ForMachines || at.Kind == "Machine" }

func inherits(at taint.Place) bool {
	return at.ForMachines || at.Kind != "ClusterClass" && !IsTemplate(at.Kind)
}

// Mistake is a key of heirloom.dev or a subdomain that does not have the effect that its writer expects.
type Mistake struct {
	Entry
	Problem string
}

// String returns the mistake as a sentence.
func (m Mistake) String() string { return fmt.Sprintf("%s %s %s", m.What, shorten(m.Name), m.Problem) }

// Mistakes returns the mistakes at a place that the same place did not have before, sorted; at most mostNamed.
func Mistakes(now, before taint.Place) (all []Mistake) {
	for _, of := range []struct {
		what     string
		has, had map[string]string
	}{{labelKey, now.Labels, before.Labels}, {annotationKey, now.Annotations, before.Annotations}} {
		for _, name := range slices.Sorted(maps.Keys(of.has)) {
			if !within(domain(name), "heirloom.dev") || !strings.Contains(name, "/") || len(all) == mostNamed {
				continue
			}
			if was, there := of.had[name]; there && was == of.has[name] {
				continue
			}
			if problem := mistake(now, of.what, name, of.has[name]); problem != "" {
				all = append(all, Mistake{Entry{What: of.what, Name: name}, problem})
			}
		}
	}
	return all
}

// mistake returns the problem of a key and its value; empty if there is none.
func mistake(at taint.Place, what, name, value string) string {
	i := slices.IndexFunc(keyTable, func(k key) bool { return k.name == name })
	switch {
	case slices.Contains(recordKeys, name):
		return ""
	case i < 0:
		return "is unknown and has no effect" + meant(name)
	}
	switch k := keyTable[i]; {
	case k.what != what:
		return "has no effect: " + name + " is " + withArticle(k.what)
	case !k.counts(at):
		return "has no effect here: it has effect only " + k.where
	case k.values != nil && !slices.Contains(k.values, value):
		last := len(k.values) - 1
		return fmt.Sprintf("must be %s or %s, not %q, which counts as %s", strings.Join(k.values[:last], ", "), k.values[last], shorten(value), k.otherwise)
	case k.problem != nil:
		return k.problem(name, value)
	}
	return ""
}

// ignoreProblem returns the problem of a value of IgnoreLabel that looks like IgnoreAndCleanUp.
func ignoreProblem(_, value string) string {
	lower := strings.ToLower(value)
	if value == IgnoreAndCleanUp || value == ignoreAndRelease || !strings.HasPrefix(lower, "clean") && !strings.HasPrefix(lower, "rel") {
		return ""
	}
	return fmt.Sprintf("removes nothing: %q only skips the object (did you mean %q?)", shorten(value), IgnoreAndCleanUp)
}

func withArticle(what string) string {
	return map[string]string{labelKey: "a label", annotationKey: "an annotation"}[what]
}

// meant asks for the known key that is most like an unknown key; empty if none is like it.
func meant(name string) string {
	if len(name) > longestKey {
		return ""
	}
	far := func(k key) int {
		knownDomain, known, _ := strings.Cut(k.name, "/")
		_, own, _ := strings.Cut(name, "/")
		d := distance(known, own)
		if len(own) > 2 && (strings.Contains(known, own) || strings.Contains(own, known)) {
			d = 1
		}
		return d + min(1, distance(knownDomain, domain(name)))
	}
	nearest := slices.MinFunc(keyTable, func(a, b key) int { return cmp.Compare(far(a), far(b)) })
	if far(nearest) > 3 {
		return ""
	}
	return fmt.Sprintf(" (did you mean the %s %s?)", nearest.what, nearest.name)
}

// distance returns how many bytes have to be added, removed or replaced to get from one text to the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
