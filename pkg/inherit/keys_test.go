// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A key of Heirloom that has no effect, or not the expected effect, is a mistake. The message says what to do.
func TestMistakes(t *testing.T) {
	on := func(kind string) taint.Place { return taint.Place{Kind: kind} }
	below := func(kind string) taint.Place { return taint.Place{Kind: kind, ForMachines: true} }
	const (
		clusters = " has no effect here: it has effect only in metadata of a Cluster or a ClusterClass"
		machines = " has no effect here: it has effect only on a Machine, in a template of Machines (spec.template.metadata or spec.machineTemplate.metadata), " +
			"and in a section of a topology or a ClusterClass"
	)
	for _, tc := range []struct {
		at       taint.Place
		is       string // "<label or annotation> <key>=<value>"
		expected string // what follows the key; empty if it is right
	}{
		{on("Machine"), "annotation taints.heirloom.dev/initialise=a:NoSchedule", " is unknown and has no effect (did you mean the annotation taints.heirloom.dev/initialize?)"},
		{on("Machine"), "annotation taint.heirloom.dev/always=a:NoSchedule", " is unknown and has no effect (did you mean the annotation taints.heirloom.dev/always?)"},
		{on("Machine"), "annotation heirloom.dev/init=a:NoSchedule", " is unknown and has no effect (did you mean the annotation taints.heirloom.dev/initialize?)"},
		{on("Cluster"), "label sync.heirloom.dev/label=a", " is unknown and has no effect (did you mean the annotation sync.heirloom.dev/labels?)"},
		{on("Machine"), "label heirloom.dev/ignored=", " is unknown and has no effect (did you mean the label heirloom.dev/ignore?)"},
		{on("Machine"), "label heirloom.dev/team=", " is unknown and has no effect"},
		{on("Machine"), "label heirloom.dev/" + strings.Repeat("x", 400) + "=", " is unknown and has no effect"},
		{on("Cluster"), "label heirloom.dev/mode=enforced", ` must be enforce or observe, not "enforced", which counts as observe`},
		{on("Cluster"), "label heirloom.dev/workload-admission=polic", ` must be auto, none, policy or webhook, not "polic", which counts as none`},
		{on("ClusterClass"), "label heirloom.dev/no-execute=pause", ` is wrong: "pause" counts as paused: must be pace, budgets or paused`},
		{on("Cluster"), "label heirloom.dev/wave=first", ` is wrong: "first" is not a number, 0 or more`},
		{on("Cluster"), "label heirloom.dev/no-execute-rate=30", ""},
		{on("MachineDeployment"), "label heirloom.dev/wave=1", clusters},
		{on("Cluster"), "annotation heirloom.dev/mode=enforce", " has no effect: heirloom.dev/mode is a label"},
		{on("Machine"), "label taints.heirloom.dev/always=a", " has no effect: taints.heirloom.dev/always is an annotation"},
		{on("MachineDeployment"), "label heirloom.dev/mode=observe", clusters},
		{below("Cluster"), "label heirloom.dev/mode=observe", clusters},
		{on("ClusterClass"), "label heirloom.dev/workload-admission=none", " has no effect here: it has effect only in metadata.labels of a Cluster"},
		{on("MachineDeployment"), "annotation sync.heirloom.dev/labels=team", clusters},
		{on("ClusterClass"), "label heirloom.dev/ignore=", " has no effect here: it has effect only on objects that inherit, on a Cluster, and in templates of Machines"},
		{on("MachineDeployment"), "annotation taints.heirloom.dev/always=a:NoSchedule", machines},
		{on("AcmeControlPlane"), "annotation taints.heirloom.dev/until=a:NoSchedule", machines},

		{on("Machine"), "annotation taints.heirloom.dev/always=a:NoSchedule", ""},
		{below("MachineDeployment"), "annotation taints.heirloom.dev/until=", ""},
		{below("Cluster"), "annotation taints.heirloom.dev/initialize=", ""},
		{below("MachineDeployment"), "label heirloom.dev/ignore=", ""},
		{on("AcmeControlPlane"), "label heirloom.dev/ignore=release", ""},
		{on("Cluster"), "label heirloom.dev/ignore=cleanup", ""},
		{on("Cluster"), "label heirloom.dev/ignore=true", ""},
		{on("Cluster"), "label heirloom.dev/ignore=clean", ` removes nothing: "clean" only skips the object (did you mean "cleanup"?)`},
		{on("Machine"), "label heirloom.dev/ignore=Released", ` removes nothing: "Released" only skips the object (did you mean "cleanup"?)`},
		{on("ClusterClass"), "label heirloom.dev/mode=observe", ""},
		{on("Cluster"), "label heirloom.dev/workload-admission=policy", ""},
		{on("ClusterClass"), "annotation sync.heirloom.dev/annotations=team", ""},
		{on("Machine"), "annotation heirloom.dev/labels-from-machine=a", ""}, // a copy of what Heirloom wrote
		{on("Machine"), "label notheirloom.dev/mode=a", ""},
		{on("Machine"), "label heirloom.dev=a", ""},
	} {
		t.Run(tc.is, func(t *testing.T) {
			what, pair, _ := strings.Cut(tc.is, " ")
			name, value, _ := strings.Cut(pair, "=")
			if tc.at.Labels = map[string]string{name: value}; what == "annotation" {
				tc.at.Labels, tc.at.Annotations = nil, tc.at.Labels
			}
			found := inherit.Mistakes(tc.at, taint.Place{})
			NewWithT(t).Expect(inherit.Mistakes(tc.at, tc.at)).To(BeEmpty(), "an update that does not change it")
			if tc.expected == "" {
				NewWithT(t).Expect(found).To(BeEmpty())
				return
			}
			NewWithT(t).Expect(found).To(HaveExactElements(And(HaveField("Name", name), HaveField("What", what), HaveField("Problem", strings.TrimSpace(tc.expected)))))
			NewWithT(t).Expect(len(found[0].String())).To(BeNumerically("<", 512))
		})
	}
}

// Every key that the code reads or writes is known.
func TestEveryKeyIsKnown(t *testing.T) {
	declared := regexp.MustCompile(`(?:Label|Annotation)\w* *= "([a-z.]*heirloom\.dev/[^"]+)"`)
	found := 0
	root := os.DirFS("..")
	NewWithT(t).Expect(fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "policy/policy.go") { // the owner of an admission policy is on no other object
			return err
		}
		source, err := fs.ReadFile(root, path)
		for _, key := range declared.FindAllStringSubmatch(string(source), -1) {
			found++
			at := taint.Place{Kind: "Cluster", Labels: map[string]string{key[1]: ""}}
			NewWithT(t).Expect(inherit.Mistakes(at, taint.Place{})).NotTo(ContainElement(HaveField("Problem", HavePrefix("is unknown"))), path)
		}
		return err
	})).To(Succeed())
	NewWithT(t).Expect(found).To(BeNumerically(">=", 14))
}
