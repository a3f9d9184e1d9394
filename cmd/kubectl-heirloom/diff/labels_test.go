// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/heirloom-dev/heirloom/test/fleet"
)

// Cluster API takes a label back by itself where it owns the label, down to the Node, and nowhere else. The workload cluster is asked for
// dependants only if a Node loses a label.
func TestLabelsThatClusterAPITakesBack(t *testing.T) {
	g, objects, listed := NewWithT(t), fleet.Objects(t, "testdata/reflectors.yaml"), false
	live := fleet.Server(objects...).WithInterceptorFuncs(fleet.Asks(func(request string) error {
		listed = listed || strings.HasPrefix(request, "list PersistentVolume")
		return nil
	})).Build()
	ask := func(change func(class map[string]any), flags ...string) *Result {
		class := objects[0].(*unstructured.Unstructured) //nolint:forcetypeassert // it panics
		q := Question{World: fleet.World(t, live, flags...), Files: []File{{class, func() (live, merged runtime.Object, err error) {
			after := class.DeepCopy()
			change(after.Object["spec"].(map[string]any)["workers"].(map[string]any)["machineDeployments"].([]any)[0].(map[string]any)) //nolint:forcetypeassert // it panics
			return class, after, nil
		}}}}
		result, err := Ask(t.Context(), q)
		g.Expect(err).NotTo(HaveOccurred())
		return result
	}

	result := ask(func(map[string]any) {})
	g.Expect(result.Labels).To(BeEmpty())
	g.Expect(listed).To(BeFalse())

	withoutLabel := func(class map[string]any) { delete(class, "metadata") }
	result = ask(withoutLabel)
	g.Expect(result.Lines()[1:]).To(Equal([]string{
		"Label node-role.kubernetes.io/route-reflector= is removed on 1 Node of Cluster fleet/prod: rr-0",
		"  used: PersistentVolume/local requires node-role.kubernetes.io/route-reflector",
	}))
	changes := map[string][]string{}
	for _, o := range result.Objects {
		for _, row := range o.rows() {
			changes[o.Kind+"/"+o.Name] = append(changes[o.Kind+"/"+o.Name], row[0])
		}
	}
	const label, template = "- label node-role.kubernetes.io/route-reflector", "- template label node-role.kubernetes.io/route-reflector"
	g.Expect(changes).To(And(
		HaveKeyWithValue("MachineDeployment/rr", ConsistOf(label, template)), HaveKeyWithValue("MachineSet/rr-1", ConsistOf(label, template)),
		HaveKeyWithValue("Machine/rr-0", ConsistOf(label)), Not(HaveKey("Machine/rr-1")), HaveKeyWithValue("Node/rr-0", ContainElement(label))))

	// Also where Heirloom leaves all objects alone.
	g.Expect(ask(withoutLabel, "--namespace=other").Labels).To(Equal(result.Labels))
}
