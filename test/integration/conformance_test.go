// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/rules"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// path is one of the two on which content gets from an owner to a child.
type path struct {
	name string
	// admission says that it is the webhooks, without the loop; otherwise it is the loop without webhooks.
	admission bool
	// byLoop has which fields of a child were ours on the path of the loop, by the name of the subtest and the number of its state.
	byLoop map[string]string
}

// conformanceCase is a child of one row of the table.
type conformanceCase struct {
	rule  int
	child string
	// declares are the columns that there is room for in what the row calls "from". Nobody can declare the others there; that
	// nothing of them arrives, all the same, every subtest expects.
	declares []column
	// onlyAdmission says that the child gets there in admission only.
	onlyAdmission bool
	// set creates what is there before the child.
	set func(*descent)
}

// TestConformance holds the program to the table of rules, row by row and column by column: beside the newest
// releases of Cluster API, for every kind of child, on each of the two paths alone. Both give a child the same content under the same
// managed fields. With -short it is beside the newest release alone.
func TestConformance(t *testing.T) {
	t.Parallel()
	releases, err := controlplane.Releases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, release := range releases {
		if testing.Short() && i < len(releases)-1 {
			continue
		}
		t.Run(release.Name, func(t *testing.T) {
			t.Parallel()
			plane := lend(t, controlplane.Options{CRDPaths: release.CRDPaths})
			// The loop comes first: it would see to what it finds, webhooks do not.
			byLoop := map[string]string{}
			for _, path := range []path{{name: "loop", byLoop: byLoop}, {name: "webhooks", admission: true, byLoop: byLoop}} {
				t.Run(path.name, func(t *testing.T) { conform(t, plane, path) })
			}
		})
	}
}

func conform(t *testing.T, on *controlplane.Lent, path path) {
	cases := slices.Concat(topologyCases(), controlPlaneCases(), workerCases(), poolCases(), nodeCases(), nothingCases())
	for _, rule := range rules.All() {
		expectCases(t, rule, cases)
	}
	expectFields(t)
	args := []string{
		"--additional-provider-groups=infrastructure.example.com",
		`--additional-sync-machine-labels=^extra\.example\.com/`, `--additional-sync-machine-annotations=^extra\.example\.com/`,
		"--no-execute-rate=0", // at once; at which pace otherwise, another test is about
	}
	s := sceneOn(t, on, stage.Options{
		WithoutLoop: path.admission, WithoutWebhooks: !path.admission, FailClosed: true,
		Values: map[string]any{"additionalProviderGroups": []any{"infrastructure.example.com"}},
		Args:   args,
		// Much is read from the caches without copies. If any of that is changed, the program ends.
		Env: []string{"KUBE_CACHE_MUTATION_DETECTOR=true"},
	})
	for i, c := range cases {
		if c.onlyAdmission && !path.admission {
			continue
		}
		rule := ruleOf(c.rule)
		namespace := fmt.Sprintf("%s-%d", path.name, i)
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		t.Run(fmt.Sprintf("rule %d %s", c.rule, c.child), func(t *testing.T) {
			for _, in := range c.declares {
				t.Run(string(in), func(t *testing.T) {
					l := &descent{scene: s.in(t), path: path, namespace: namespace, name: string(in), key: fmt.Sprint(i, in)}
					if strings.HasPrefix(c.child, "Node") {
						l.home, l.namespace, l.name = true, stage.Home, namespace+"-"+l.name
					}
					l.play(c, in, in.flow(rule).Carried)
				})
			}
		})
	}
}

// expectCases fails where the table has a row that nothing holds the program to, or says that a row carries what no case
// declares.
func expectCases(t *testing.T, rule rules.Rule, cases []conformanceCase) {
	t.Helper()
	ofRule := slices.DeleteFunc(slices.Clone(cases), func(c conformanceCase) bool { return c.rule != rule.Number })
	if len(ofRule) == 0 {
		t.Errorf("rule %d has no case", rule.Number)
	}
	for _, in := range columns() {
		declared := slices.ContainsFunc(ofRule, func(c conformanceCase) bool { return slices.Contains(c.declares, in) })
		if in.flow(rule).Carried && !declared {
			t.Errorf("rule %d carries %s, and no case declares any", rule.Number, in)
		}
	}
}

// ruleOf returns the row of that number. A case without one would be about nothing.
func ruleOf(number int) rules.Rule {
	all := rules.All()
	i := slices.IndexFunc(all, func(rule rules.Rule) bool { return rule.Number == number })
	if i < 0 {
		panic(fmt.Sprintf("there is no rule %d", number))
	}
	return all[i]
}
