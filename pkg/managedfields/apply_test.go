// SPDX-License-Identifier: Apache-2.0

package managedfields_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestApplyConfiguration(t *testing.T) {
	for _, tc := range []struct {
		name             string
		current, desired inherit.Object
		fields           []metav1.ManagedFieldsEntry
		// want is the configuration beside apiVersion, kind and the object's name, namespace, UID and version.
		metadata, spec string
	}{
		{
			name:    "it holds what we add",
			current: content{labels: "mine=1"}.top(), desired: content{labels: "a=1", annotations: "b=2", taints: "gpu=1:NoSchedule,z:NoExecute@OnInitialization"}.top(),
			metadata: "{labels: {a: '1'}, annotations: {b: '2'}}",
			spec:     "{taints: [{key: gpu, value: '1', effect: NoSchedule, propagation: Always}, {key: z, effect: NoExecute, propagation: OnInitialization}]}",
		},
		{
			name:    "it holds what is ours already, because an apply without it would remove it",
			current: content{labels: "a=1"}.top(), desired: content{labels: "a=1,b=2"}.top(), fields: entries(ours(labelA)),
			metadata: "{labels: {a: '1', b: '2'}}",
		},
		{
			name:    "it leaves out what somebody else brought with the right value",
			current: content{labels: "a=1"}.top(), desired: content{labels: "a=1,b=2"}.top(), fields: entries(theirs(labelA)),
			metadata: "{labels: {b: '2'}}",
		},
		{
			name:    "it holds what is taken from another manager",
			current: content{labels: "a=2"}.top(), desired: content{labels: "a=1"}.top(), fields: entries(theirs(labelA)),
			metadata: "{labels: {a: '1'}}",
		},
		{
			name:    "it is empty where nothing is declared any more, so that an apply removes what is ours",
			current: content{labels: "a=1"}.top(), desired: content{}.top(), fields: entries(ours(labelA)),
			metadata: "{}",
		},
		{
			name:    "it reaches into a template",
			current: content{}.template(), desired: content{labels: "a=1", annotations: "b=2", taints: "gpu:NoSchedule"}.template(),
			metadata: "{}",
			spec:     "{template: {metadata: {labels: {a: '1'}, annotations: {b: '2'}}, spec: {taints: [{key: gpu, effect: NoSchedule, propagation: Always}]}}}",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			object := &metav1.ObjectMeta{Name: "m", Namespace: "ns", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"mine": "1"}}
			plan := newPlan(t, tc.current, tc.desired, tc.fields)

			config, err := plan.ApplyConfiguration(version, "Machine", object)

			Expect(err).NotTo(HaveOccurred())
			Expect(config.GetAPIVersion()).To(Equal(version))
			Expect(config.GetKind()).To(Equal("Machine"))
			Expect(config.GetName()).To(Equal("m"))
			Expect(config.GetNamespace()).To(Equal("ns"))
			Expect(config.GetUID()).To(BeEquivalentTo("uid"), "an object that is gone must not be created again")
			Expect(config.GetResourceVersion()).To(Equal("7"), "what has gone from it meanwhile must not come back")

			metadata, ok := config.Object["metadata"].(map[string]any)
			Expect(ok).To(BeTrue())
			for _, identity := range []string{"name", "namespace", "uid", "resourceVersion"} {
				delete(metadata, identity)
			}
			Expect(asJSON(t, metadata)).To(MatchYAML(tc.metadata))
			if tc.spec == "" {
				Expect(config.Object).NotTo(HaveKey("spec"))
				return
			}
			Expect(asJSON(t, config.Object["spec"])).To(MatchYAML(tc.spec))
		})
	}
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return raw
}
