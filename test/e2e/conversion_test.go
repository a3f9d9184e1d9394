// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// Clients may still write Cluster API's objects in v1beta1. Cluster API's own webhook converts them for Heirloom's webhooks, whose
// additions belong to Heirloom's entry of managed fields, in v1beta2: later the loop removes exactly these additions, and another apply
// of the client changes nothing.
func TestV1beta1Clients(t *testing.T) {
	ctx, Expect := t.Context(), NewWithT(t).Expect
	dir := worldDir(t)
	s, _ := newStage(t, dir, []string{"--cluster-api-taint-propagation=enabled"})
	Expect(s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage.Home}})).To(Succeed())
	Expect(s.Client.Create(ctx, stage.Cluster(stage.Home, stage.Home))).To(Succeed())
	// This test needs only the webhooks and the conversion. The controllers would delete a MachineSet that they did not create.
	managers, err := clusterapi.Start(ctx, s.ControlPlane, clusterapi.Options{Dir: dir, TaintPropagation: true, Namespace: "elsewhere"})
	Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { Expect(managers.Stop()).To(Succeed()) })

	apply := func(kind, name, owner, spec string) *unstructured.Unstructured {
		t.Helper()
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte("{metadata: {labels: {cluster.x-k8s.io/cluster-name: home}}, spec: "+spec+"}"), &object.Object)).To(Succeed())
		object.SetAPIVersion("cluster.x-k8s.io/v1beta1")
		object.SetKind(kind)
		object.SetNamespace(stage.Home)
		object.SetName(name)
		if owner != "" {
			md := &clusterv1.MachineDeployment{}
			Expect(s.Client.Get(ctx, client.ObjectKey{Namespace: stage.Home, Name: owner}, md)).To(Succeed())
			object.SetOwnerReferences([]metav1.OwnerReference{stage.ControlledBy(md, "MachineDeployment")})
		}
		NewWithT(t).Eventually(func() error { // the API server needs a moment for the conversion
			return s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("gitops"))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		Expect(s.Client.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		return object
	}
	const machine = "clusterName: home, bootstrap: {dataSecretName: s}, " +
		"infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: FakeMachineTemplate, name: small, namespace: " + stage.Home + "}"
	const selector = "clusterName: home, replicas: 0, selector: {matchLabels: {app: old}}"
	declare := func(labels, around, spec string) {
		apply("MachineDeployment", "old", "", "{"+selector+around+", template: {metadata: {labels: {app: old"+labels+"}}, spec: {"+machine+spec+"}}}")
	}
	write := func() *unstructured.Unstructured {
		return apply("MachineSet", "old", "old", "{"+selector+", template: {metadata: {labels: {app: old, zone: z}}, spec: {"+machine+"}}}")
	}

	declare(", zone: z, team: a", ", minReadySeconds: 5", ", nodeDrainTimeout: 90s, taints: [{key: gpu, effect: NoSchedule, propagation: Always}]")
	created := write()
	spec := func(path ...string) any {
		value, _, _ := unstructured.NestedFieldNoCopy(created.Object, append([]string{"spec"}, path...)...)
		return value
	}
	Expect(spec("template", "metadata", "labels")).To(HaveKeyWithValue("team", "a"), "the webhook brings it, in v1beta1")
	Expect(spec("template", "spec", "nodeDrainTimeout")).To(Equal("1m30s"))
	Expect(spec("minReadySeconds")).To(BeEquivalentTo(5))

	stored := &clusterv1.MachineSet{}
	get := func(g Gomega) {
		g.Expect(s.Client.Get(ctx, client.ObjectKeyFromObject(created), stored)).To(Succeed())
	}
	get(NewWithT(t))
	template := &stored.Spec.Template
	Expect(template.Spec.Deletion.NodeDrainTimeoutSeconds).To(HaveValue(BeEquivalentTo(90)))
	Expect(template.Spec.MinReadySeconds).To(HaveValue(BeEquivalentTo(5)))
	Expect(template.Spec.Taints).To(ConsistOf(HaveField("Key", "gpu")))
	ours := stored.ManagedFields[slices.IndexFunc(stored.ManagedFields, managedfields.IsOurs)]
	Expect(ours.APIVersion).To(Equal(clusterv1.GroupVersion.String()))
	Expect(ours.FieldsV1.GetRawString()).To(MatchJSON(`{
		"f:metadata": {"f:labels": {"f:team": {}, "f:zone": {}}},
		"f:spec": {"f:template": {"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {
			"f:deletion": {"f:nodeDrainTimeoutSeconds": {}}, "f:minReadySeconds": {},
			"f:taints": {"k:{\"effect\":\"NoSchedule\",\"key\":\"gpu\"}": {".": {}, "f:effect": {}, "f:key": {}, "f:propagation": {}}}
		}}}
	}`), "the template's zone is the client's own")
	before := stored.ResourceVersion
	write()
	get(NewWithT(t))
	Expect(stored.ResourceVersion).To(Equal(before), "the client's own apply changes nothing")

	declare("", "", "")
	NewWithT(t).Eventually(func(g Gomega) {
		get(g)
		g.Expect(stored.Labels).NotTo(Or(HaveKey("team"), HaveKey("zone")))
		g.Expect(template.Labels).To(Equal(map[string]string{"app": "old", "zone": "z"}), "the client's own label stays")
		g.Expect(template.Spec.Deletion.NodeDrainTimeoutSeconds).To(BeNil())
		g.Expect(ptr.Deref(template.Spec.MinReadySeconds, 0)).To(BeZero())
		g.Expect(template.Spec.Taints).To(BeEmpty())
		g.Expect(slices.ContainsFunc(stored.ManagedFields, managedfields.IsOurs)).To(BeFalse())
	}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
	before = stored.ResourceVersion
	write()
	get(NewWithT(t))
	Expect(stored.ResourceVersion).To(Equal(before))
}
