// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "it", errors.New("no right"))
	conflict  = apierrors.NewConflict(schema.GroupResource{Resource: "any"}, "it", errors.New("somebody was faster"))
)

// The error names each object that cannot be cleaned up. All other objects are cleaned up.
func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name, refuse string
		with         error
		problem      string
	}{
		{"a kind may not be listed", "list Machine", forbidden, "listing Machine.cluster.x-k8s.io: any \"it\" is forbidden"},
		{"an object may not be read", "get Machine", forbidden, "Machine.cluster.x-k8s.io ns/m: any \"it\" is forbidden"},
		{"an object may not be written", "patch Machine", forbidden, "Machine.cluster.x-k8s.io ns/m: any \"it\" is forbidden"},
		{"Clusters may not be listed", "list Cluster", forbidden, "listing Cluster.cluster.x-k8s.io: any \"it\" is forbidden"},
		{"somebody is always faster", "patch Machine", conflict, "Machine.cluster.x-k8s.io ns/m: Operation cannot be fulfilled"},
		{"a Node may not be read", "get Node", forbidden, "Node /n: any \"it\" is forbidden"},
		{"a Node may not be written", "patch Node", forbidden, "Node /n: any \"it\" is forbidden"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, teamed(t, core, "MachineSet", "ms"), teamed(t, core, "Machine", "m"), teamed(t, infra, "InfraMachine", "im"), ofBoth())
				management.fail[tc.refuse] = tc.with
				r := cleaning(management, Options{})
				begun := time.Now()
				err := r.Run(t.Context())
				Expect(err).To(MatchError(HavePrefix("not everything could be cleaned up; fix these errors, and run it again:\n")))
				Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				Expect(strings.Count(err.Error(), "\n")).To(Equal(1), "no other problem")
				Expect(management.written()).To(ContainElements("patch MachineSet ms", "patch InfraMachine im"))
				Expect(time.Since(begun)).To(BeNumerically("<", 30*time.Second), "the retries end")
			})
		})
	}
}

// The output does not mention an object that goes meanwhile, nor a Node from which somebody else takes Heirloom's entries.
func TestObjectsDeletedDuringACleanup(t *testing.T) {
	machine, bare := teamed(t, core, "Machine", "m"), node("n", nil, nil)
	deleted := func(s *apiServer, o client.Object) error { return s.others.Delete(t.Context(), o) }
	updated := func(s *apiServer, _ client.Object) error { return s.others.Update(t.Context(), bare) }
	for _, tc := range []struct {
		request   string
		object    client.Object
		meanwhile func(*apiServer, client.Object) error
	}{
		{"get Machine", machine, deleted}, {"patch Machine", machine, deleted},
		{"get Node", ofBoth(), deleted}, {"patch Node", ofBoth(), deleted}, {"get Node", ofBoth(), updated},
	} {
		synctest.Test(t, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, tc.object)
			management.before[tc.request] = func() { Expect(tc.meanwhile(management, tc.object)).To(Succeed()) }
			r := cleaning(management, Options{})
			Expect(r.Run(t.Context())).To(Succeed())
			Expect(management.written()).To(BeEmpty())
			Expect(r.out.String()).To(BeEmpty(), tc.request)
		})
	}
}

// A write after which all entries are back is retried as long as API servers may still call a webhook that has just been deleted. After
// that it is an error.
func TestAnotherHeirloomAtWork(t *testing.T) {
	const problem = "Machine.cluster.x-k8s.io ns/m: removed entries have come back in the same write: another Heirloom is still running"
	for _, tc := range []struct {
		name    string
		times   int
		problem string
	}{{"only once", 1, ""}, {"for good", 1 << 10, problem}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				management := holds(served, teamed(t, core, "Machine", "m"), ofBoth())
				management.after["patch Node"] = func(o client.Object) {
					if tc.times > 1 {
						Expect(management.others.Update(t.Context(), ofBoth())).To(Succeed())
						Expect(management.others.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
					}
				}
				management.after["patch Machine"] = func(o client.Object) {
					if tc.times--; tc.times >= 0 {
						management.inherits(t, "m")
						Expect(management.others.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
					}
				}
				err := cleaning(management, Options{}).Run(t.Context())
				_, managers := management.stored(t, core, "Machine", "m")
				if tc.problem == "" {
					Expect(err).NotTo(HaveOccurred())
					Expect(managers).NotTo(ContainElement("heirloom"))
					return
				}
				Expect(err).To(MatchError(And(ContainSubstring(tc.problem), ContainSubstring("Node /n: removed entries have come back in the same write"))))
				Expect(managers).To(ContainElement("heirloom"))
			})
		})
	}
}

// brokenDiscovery cannot discover the group version broken. If broken is empty, it answers nothing.
type brokenDiscovery struct {
	discovery.DiscoveryInterface
	broken string
	err    error
}

func (d brokenDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	if groupVersion == d.broken {
		return nil, d.err
	}
	return d.DiscoveryInterface.ServerResourcesForGroupVersion(groupVersion)
}

func (d brokenDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	if d.broken == "" {
		return nil, d.err
	}
	return d.DiscoveryInterface.ServerGroups()
}

func TestFailedDiscovery(t *testing.T) {
	for _, tc := range []struct{ name, broken, problem string }{
		{"are an error where they are ours", infra, "discovering the API server's kinds: unable to retrieve the complete list of server APIs: " + infra},
		{"are nothing to us where they are not", "v1", ""},
		{"are an error where there is no answer at all", "", "discovering the API server's kinds: no route"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			management := holds(served, teamed(t, core, "Machine", "m"))
			r := cleaning(management, Options{})
			r.Discovery = brokenDiscovery{r.Discovery, tc.broken, errors.New("no route")}
			err := r.Run(t.Context())
			if tc.problem == "" {
				Expect(err).NotTo(HaveOccurred())
				Expect(management.written()).To(Equal([]string{"patch Machine m"}))
				return
			}
			Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			Expect(management.written()).To(BeEmpty(), "the existing kinds are unknown")
		})
	}
}

// Owners come first. Group and kind decide which objects are ours. Control planes and external objects may be of any kind.
func TestKinds(t *testing.T) {
	kinds := func(group string, kinds ...string) (all []schema.GroupVersionKind) {
		for _, kind := range kinds {
			all = append(all, schema.FromAPIVersionAndKind(group, kind))
		}
		return all
	}
	d := discovers(map[string][]string{"v1": {"Node"}, "infra.example.com/v1": {"Metal"}, infra: {"FakeMachine", "FakeMachineTemplate"},
		core: {"Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"}, controlPlane: {"CP", "CPTemplate"}, "other.example.com/v1": {"Other"}})
	for _, list := range d.(*fakediscovery.FakeDiscovery).Resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: "x", Kind: "Unscoped", Verbs: metav1.Verbs{"list", "patch"}},
			metav1.APIResource{Name: "y", Kind: "Unlisted", Verbs: metav1.Verbs{"create"}, Namespaced: true})
	}
	NewWithT(t).Expect(Kinds(d, []string{"infrastructure.cluster.x-k8s.io", "infra.example.com"})).To(Equal(slices.Concat(
		kinds(controlPlane, "CP"), kinds(core, "MachineDeployment", "MachineSet", "Machine"), kinds(infra, "FakeMachine"), kinds("infra.example.com/v1", "Metal"),
	)))
}

// If a CustomResourceDefinition or all of Cluster API is missing, there is nothing to clean up.
func TestMissingKinds(t *testing.T) {
	Expect := NewWithT(t).Expect
	management := holds(map[string][]string{"v1": {"Node"}}, node("n", nil, nil))
	for _, r := range []*run{cleaning(management, Options{}), cleaning(management, Options{}).within("ns", ""), cleaning(management, Options{}).within("", "red")} {
		r.Discovery = discovers(map[string][]string{"v1": {"Node"}})
		Expect(r.Run(t.Context())).To(Succeed())
	}
	Expect(management.written()).To(BeEmpty())
}
