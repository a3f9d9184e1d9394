// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
)

// explainAs asks about an object of the fleet, beside a server with these flags.
func explainAs(t *testing.T, objects []client.Object, gvk schema.GroupVersionKind, key types.NamespacedName, flags ...string) (*Explanation, error) {
	t.Helper()
	as, err := (&settings.Flags{ServerFlags: append(flags, "--cluster-api-taint-propagation=enabled")}).Offline()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return New(snapshot.New(serves(t, objects...), layouts{}), as).Explain(t.Context(), gvk, key)
}

// What is in a namespace that the server does not watch is left alone, and explained all the same. So is a Node that is being deleted.
func TestAnotherNamespaceIsLeftAlone(t *testing.T) {
	const why = "the server only watches namespace fleet."
	node, machine := corev1.SchemeGroupVersion.WithKind("Node"), types.NamespacedName{Namespace: "default", Name: "m"}
	for flag, notes := range map[string][]string{
		"--namespace=fleet": {
			"Heirloom leaves the object alone for now, because " + why,
			"Heirloom leaves the object alone for now, because of Machine default/m: " + why,
		},
		"--namespace=default": {"", ""},
	} {
		g := NewWithT(t)
		ofMachine, err := explainAs(t, fleet(), capiKind("Machine"), machine, flag)
		g.Expect(err).NotTo(HaveOccurred())
		beingDeleted := fleet()
		for _, object := range beingDeleted {
			if _, ok := object.(*corev1.Node); ok {
				object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
				object.SetFinalizers([]string{"x/y"})
			}
		}
		ofNode, err := explainAs(t, beingDeleted, node, types.NamespacedName{Name: "n"}, flag, "--management-cluster=default/c")
		g.Expect(err).NotTo(HaveOccurred())
		for i, e := range []*Explanation{ofMachine, ofNode} {
			if notes[i] == "" {
				g.Expect(e.Notes).NotTo(ContainElement(ContainSubstring("leaves the object alone")))
			} else {
				g.Expect(e.Notes).To(ContainElement(notes[i]))
			}
			g.Expect(lines(e)).To(ContainElement(HavePrefix("label " + labelOfClass + "=1 <- ClusterClass default/class")))
		}
	}
}

// An InfraMachine can be explained if the server knows its API group.
func TestProviderGroups(t *testing.T) {
	g := NewWithT(t)
	elsewhere := schema.GroupVersionKind{Group: "infra.example.com", Version: "v1", Kind: "AcmeMachine"}
	objects := fleet()
	for _, object := range objects {
		switch o := object.(type) {
		case *unstructured.Unstructured:
			if o.GetKind() == elsewhere.Kind {
				o.SetGroupVersionKind(elsewhere)
			}
		case *clusterv1.Machine:
			if o.Name == "m" {
				o.Spec.InfrastructureRef.APIGroup = elsewhere.Group
			}
		}
	}
	key := types.NamespacedName{Namespace: "default", Name: "m"}
	_, err := explainAs(t, objects, elsewhere, key)
	g.Expect(err).To(MatchError(And(HavePrefix("cannot explain a AcmeMachine.infra.example.com"), ContainSubstring("--additional-provider-groups"))))
	e, err := explainAs(t, objects, elsewhere, key, "--additional-provider-groups="+elsewhere.Group)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lines(e)).To(ContainElement(HavePrefix("label " + labelOfClass + "=1 <- ClusterClass default/class")))
}
