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

// path is one of the two ways in which content gets from an owner to a child.
type path struct {
	name string
	// admission means webhooks without the loop; otherwise the path is the loop without webhooks.
	admission bool
	// byLoop has the fields of a child that heirloom owned on the path of the loop, by the key of the subtest and the number of its state.
	byLoop map[string]string
}

// conformanceCase is a child of one row of the table.
type conformanceCase struct {
	rule  int
	child string
	// declares are the columns for which the row's "from" has fields. No owner can declare the other columns there; every subtest expects
	// nevertheless that none of their content arrives.
	declares []column
	// onlyAdmission means that the child inherits only with webhooks.
	onlyAdmission bool
	// set creates the objects that exist before the child.
	set func(*descent)
}

// TestConformance tests the program against the table of rules, row by row and column by column: with the newest
// releases of Cluster API, for every kind of child, on each of the two paths alone. Both paths give a child the same content and the
// same managed fields. With -short, it uses only the newest release.
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
			// The loop comes first: it would change objects of the other path, but webhooks do not change existing objects.
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
		"--no-execute-rate=0", // without a pace, which another test covers
	}
	s := sceneOn(t, on, stage.Options{
		WithoutLoop: path.admission, WithoutWebhooks: !path.admission, FailClosed: true,
		Values: map[string]any{"additionalProviderGroups": []any{"infrastructure.example.com"}},
		Args:   args,
		// The program reads many objects from the caches without copies. With this variable, it exits if it changes a cached object.
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

// expectCases fails if a row of the table has no case, or carries a column that no case declares.
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

// ruleOf returns the row with this number. It panics without a row, because the case would test nothing.
func ruleOf(number int) rules.Rule {
	all := rules.All()
	i := slices.IndexFunc(all, func(rule rules.Rule) bool { return rule.Number == number })
	if i < 0 {
		panic(fmt.Sprintf("there is no rule %d", number))
	}
	return all[i]
}
