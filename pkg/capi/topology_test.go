// SPDX-License-Identifier: Apache-2.0

package capi_test

import (
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // deprecated and still served
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// One ClusterClass and one Cluster in the words of each version.
const (
	lists       = "taints: [{key: gpu, value: 'true', effect: NoSchedule, propagation: Always}], readinessGates: [{conditionType: example.com/Ready, polarity: Negative}]"
	inSeconds   = "deletion: {nodeDrainTimeoutSeconds: 90, nodeVolumeDetachTimeoutSeconds: 60, nodeDeletionTimeoutSeconds: 0}"
	inDurations = "nodeDrainTimeout: 1m30s, nodeVolumeDetachTimeout: 1m, nodeDeletionTimeout: 0s"

	classV1beta2 = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {namespace: classes, name: cc}
spec:
  infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeClusterTemplate, name: t}}
  controlPlane: {metadata: {labels: {tier: cp}, annotations: {note: class}}, ` + inSeconds + ", " + lists + `,
    templateRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlaneTemplate, name: t},
    machineInfrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeMachineTemplate, name: t}}}
  workers:
    machineDeployments:
    - {class: small, metadata: {labels: {tier: worker}, annotations: {note: class}}, minReadySeconds: 5, ` + inSeconds + ", " + lists + `,
       bootstrap: {templateRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, kind: KubeadmConfigTemplate, name: t}},
       infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeMachineTemplate, name: t}}}
    machinePools:
    - {class: pool, metadata: {labels: {tier: pool}}, minReadySeconds: 6, ` + inSeconds + `,
       bootstrap: {templateRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, kind: KubeadmConfigTemplate, name: t}},
       infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeMachinePoolTemplate, name: t}}}`

	classV1beta1 = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: ClusterClass
metadata: {namespace: classes, name: cc}
spec:
  infrastructure: {ref: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeClusterTemplate, name: t}}
  controlPlane: {metadata: {labels: {tier: cp}, annotations: {note: class}}, ` + inDurations + ", " + lists + `,
    ref: {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlaneTemplate, name: t},
    machineInfrastructure: {ref: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeMachineTemplate, name: t}}}
  workers:
    machineDeployments:
    - {class: small, minReadySeconds: 5, ` + inDurations + ", " + lists + `, template: {metadata: {labels: {tier: worker}, annotations: {note: class}},
       bootstrap: {ref: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: t}},
       infrastructure: {ref: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeMachineTemplate, name: t}}}}
    machinePools:
    - {class: pool, minReadySeconds: 6, ` + inDurations + `, template: {metadata: {labels: {tier: pool}},
       bootstrap: {ref: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: t}},
       infrastructure: {ref: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: AcmeMachinePoolTemplate, name: t}}}}`

	clusterV1beta2 = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: ns, name: c}
spec:
  paused: true
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}
  topology:
    classRef: {name: cc, namespace: classes}
    version: v1.36.3
    controlPlane: {replicas: 3, metadata: {labels: {tier: cp}, annotations: {note: cluster}}, ` + inSeconds + ", " + lists + `}
    workers:
      machineDeployments:
      - {name: md-0, class: small, replicas: 2, metadata: {labels: {tier: worker}, annotations: {note: cluster}}, minReadySeconds: 5, ` + inSeconds + ", " + lists + `}
      machinePools:
      - {name: mp-0, class: pool, metadata: {labels: {tier: pool}}, minReadySeconds: 6, ` + inSeconds + `}`

	clusterV1beta1 = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {namespace: ns, name: c}
spec:
  paused: true
  controlPlaneRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, name: cp, namespace: ns}
  topology:
    class: cc
    classNamespace: classes
    version: v1.36.3
    controlPlane: {replicas: 3, metadata: {labels: {tier: cp}, annotations: {note: cluster}}, ` + inDurations + ", " + lists + `}
    workers:
      machineDeployments:
      - {name: md-0, class: small, replicas: 2, metadata: {labels: {tier: worker}, annotations: {note: cluster}}, minReadySeconds: 5, ` + inDurations + ", " + lists + `}
      machinePools:
      - {name: mp-0, class: pool, metadata: {labels: {tier: pool}}, minReadySeconds: 6, ` + inDurations + `}`
)

// summary writes down what a section says, in whichever words.
func summary(s capi.Section) string {
	metadata := s.ObjectMeta
	if s.Template.Labels != nil {
		metadata = s.Template.ObjectMeta
	}
	seconds := func(seconds *int32, duration *metav1.Duration) string {
		switch {
		case seconds != nil:
			return fmt.Sprint(*seconds)
		case duration != nil:
			return fmt.Sprint(duration.Seconds())
		}
		return "-"
	}
	text := fmt.Sprintf("%s/%s %v %v %s %s %s %s", s.Name, s.Class, metadata.Labels, metadata.Annotations, seconds(s.Deletion.NodeDrainTimeoutSeconds, s.NodeDrainTimeout),
		seconds(s.Deletion.NodeVolumeDetachTimeoutSeconds, s.NodeVolumeDetachTimeout), seconds(s.Deletion.NodeDeletionTimeoutSeconds, s.NodeDeletionTimeout),
		seconds(s.MinReadySeconds, nil))
	for _, t := range s.Taints {
		text += fmt.Sprintf(" %s=%s:%s@%s", t.Key, t.Value, t.Effect, t.Propagation)
	}
	for _, gate := range s.ReadinessGates {
		text += fmt.Sprintf(" %s/%s", gate.ConditionType, gate.Polarity)
	}
	if s.MachineInfrastructure != nil {
		text += " machines"
	}
	return text
}

func summaries(s capi.Sections) []string {
	all := []string{summary(s.ControlPlane)}
	for _, worker := range append(s.Workers.MachineDeployments, s.Workers.MachinePools...) {
		all = append(all, summary(worker))
	}
	return all
}

// read decodes an object of Cluster API's own type, the way the API server's JSON is decoded. That it fits this type
// says that it is one that Cluster API knows.
func read[T any](t *testing.T, own any) *T {
	t.Helper()
	Expect := NewWithT(t).Expect
	raw, err := json.Marshal(own)
	Expect(err).NotTo(HaveOccurred())
	into := new(T)
	Expect(kjson.UnmarshalCaseSensitivePreserveInts(raw, into)).To(Succeed())
	return into
}

// own reads YAML into one of Cluster API's own types, which must have every field of it.
func own[T any](t *testing.T, document string) *T {
	t.Helper()
	into := new(T)
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(document), into)).To(Succeed())
	return into
}

// Either version says the same, in its own words and as Cluster API itself converts it.
func TestClusterClassOfEachVersion(t *testing.T) {
	v1beta2, v1beta1, converted := own[clusterv1.ClusterClass](t, classV1beta2), own[clusterv1beta1.ClusterClass](t, classV1beta1), &clusterv1beta1.ClusterClass{}
	NewWithT(t).Expect(clusterv1beta1.Convert_v1beta2_ClusterClass_To_v1beta1_ClusterClass(v1beta2, converted, nil)).To(Succeed())
	for name, class := range map[string]*capi.ClusterClass{
		"v1beta2": read[capi.ClusterClass](t, v1beta2), "v1beta1": read[capi.ClusterClass](t, v1beta1), "converted": read[capi.ClusterClass](t, converted),
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(class.Namespace + "/" + class.Name).To(Equal("classes/cc"))
			NewWithT(t).Expect(summaries(class.Spec)).To(Equal([]string{
				"/ map[tier:cp] map[note:class] 90 60 0 - gpu=true:NoSchedule@Always example.com/Ready/Negative machines",
				"/small map[tier:worker] map[note:class] 90 60 0 5 gpu=true:NoSchedule@Always example.com/Ready/Negative",
				"/pool map[tier:pool] map[] 90 60 0 6",
			}))
		})
	}
}

func TestClusterOfEachVersion(t *testing.T) {
	v1beta2, v1beta1, converted := own[clusterv1.Cluster](t, clusterV1beta2), own[clusterv1beta1.Cluster](t, clusterV1beta1), &clusterv1beta1.Cluster{}
	NewWithT(t).Expect(clusterv1beta1.Convert_v1beta2_Cluster_To_v1beta1_Cluster(v1beta2, converted, nil)).To(Succeed())
	converted.Spec.ControlPlaneRef = v1beta1.Spec.ControlPlaneRef // which needs the API server to convert
	for name, cluster := range map[string]*capi.Cluster{
		"v1beta2": read[capi.Cluster](t, v1beta2), "v1beta1": read[capi.Cluster](t, v1beta1), "converted": read[capi.Cluster](t, converted),
	} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			Expect(cluster.Spec.Paused).To(BeTrue())
			Expect(cluster.Spec.ControlPlaneRef.GroupKind().String()).To(Equal("KubeadmControlPlane.controlplane.cluster.x-k8s.io"))
			Expect(cluster.Spec.ControlPlaneRef.Name).To(Equal("cp"))
			Expect(cluster.Spec.Topology).NotTo(BeNil())
			Expect(cluster.Spec.Topology.ClassRef.Name + cluster.Spec.Topology.Class).To(Equal("cc"))
			Expect(cluster.Spec.Topology.ClassRef.Namespace + cluster.Spec.Topology.ClassNamespace).To(Equal("classes"))
			Expect(summaries(cluster.Spec.Topology.Sections)).To(Equal([]string{
				"/ map[tier:cp] map[note:cluster] 90 60 0 - gpu=true:NoSchedule@Always example.com/Ready/Negative",
				"md-0/small map[tier:worker] map[note:cluster] 90 60 0 5 gpu=true:NoSchedule@Always example.com/Ready/Negative",
				"mp-0/pool map[tier:pool] map[] 90 60 0 6",
			}))
		})
	}
}

// What is not declared is told from what is declared as nothing, also in a copy.
func TestWhatIsDeclaredAsNothing(t *testing.T) {
	for _, tc := range []struct {
		name, section           string
		taints, gates, machines bool
	}{
		{name: "what is left out is not declared", section: "{}"},
		{name: "null is not declared", section: "{taints: null, readinessGates: null, machineInfrastructure: null}"},
		{name: "an empty list is declared", section: "{taints: [], readinessGates: []}", taints: true, gates: true},
		{name: "that there is a reference to machines counts, not what it is", section: "{machineInfrastructure: {templateRef: {name: t}}}", machines: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			raw, err := yaml.YAMLToJSON([]byte("{spec: {controlPlane: " + tc.section + "}}"))
			Expect(err).NotTo(HaveOccurred())
			class := read[capi.ClusterClass](t, json.RawMessage(raw))
			for _, section := range []capi.Section{class.Spec.ControlPlane, class.DeepCopy().Spec.ControlPlane} {
				Expect(section.Taints != nil).To(Equal(tc.taints))
				Expect(section.ReadinessGates != nil).To(Equal(tc.gates))
				Expect(section.MachineInfrastructure != nil).To(Equal(tc.machines))
			}
		})
	}
}

func TestGroupKind(t *testing.T) {
	for _, tc := range []struct {
		name, reference string
		want            schema.GroupKind
	}{
		{name: "v1beta2 names the group", reference: "{apiGroup: a.example.com, kind: Acme, name: x}", want: schema.GroupKind{Group: "a.example.com", Kind: "Acme"}},
		{name: "v1beta1 names group and version", reference: "{apiVersion: a.example.com/v1alpha1, kind: Acme, name: x, namespace: ns, uid: u}", want: schema.GroupKind{Group: "a.example.com", Kind: "Acme"}},
		{name: "the core group has no name", reference: "{apiVersion: v1, kind: Secret, name: x}", want: schema.GroupKind{Kind: "Secret"}},
		{name: "where both are there, the newer form counts", reference: "{apiGroup: a.example.com, apiVersion: b.example.com/v1, kind: Acme}", want: schema.GroupKind{Group: "a.example.com", Kind: "Acme"}},
		{name: "no reference is to nothing", reference: "{}"},
		{name: "a version that cannot be read is of no group", reference: "{apiVersion: a/b/c, kind: Acme}", want: schema.GroupKind{Kind: "Acme"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ref := capi.ObjectRef{}
			NewWithT(t).Expect(yaml.Unmarshal([]byte(tc.reference), &ref)).To(Succeed())
			NewWithT(t).Expect(ref.GroupKind()).To(Equal(tc.want))
		})
	}
}
