// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	_ "embed"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

//go:embed testdata/fleet.yaml
var fleetManifest string

// tools returns the GitOps tools of the tests.
func tools() map[string]tool {
	serverSide := []any{"ServerSideApply=true"}
	return map[string]tool{
		"argocd-client-side":      argo{application: application(nil, "")},
		"argocd-server-side":      argo{application: application(serverSide, "")},
		"argocd-server-side-diff": argo{application: application(serverSide, "ServerSideDiff=true")},
		"argocd-all-mutations":    argo{application: application(serverSide, "ServerSideDiff=true,IncludeMutationWebhook=true")},
		"argocd-label": argo{
			application: application(nil, ""), settings: map[string]string{"application.resourceTrackingMethod": "label"},
		},
		"flux-kustomization": kustomization{},
		"flux-helm":          helmRelease{},
	}
}

// family has the objects of one subtest that are not in Git: Cluster API creates them.
type family struct {
	// ofPlain and ofTopology have a MachineSet and a Machine each; ofTopology begins with its MachineDeployment.
	ofPlain, ofTopology []client.Object
	// ofControlPlane is the Machine of a control plane.
	ofControlPlane client.Object
}

func (f family) all() []client.Object {
	return append(append([]client.Object{f.ofControlPlane}, f.ofPlain...), f.ofTopology...)
}

func fleetOf(s *scene, namespace string) []*unstructured.Unstructured {
	s.t.Helper()
	decoded, err := controlplane.DecodeObjects(fleetManifest)
	s.Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for i := range decoded {
		decoded[i].SetNamespace(namespace)
		objects = append(objects, &decoded[i])
	}
	return objects
}

// bear creates the objects that Cluster API would create.
func (s *scene) bear(namespace string) family {
	s.t.Helper()
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: namespace, Name: name} }
	workers, topology := &clusterv1.MachineDeployment{}, &clusterv1.Cluster{}
	s.Expect(s.Client.Get(s.ctx, key("workers"), workers)).To(Succeed())
	s.Expect(s.Client.Get(s.ctx, key("topology"), topology)).To(Succeed())
	controlPlane := &unstructured.Unstructured{}
	controlPlane.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
	controlPlane.SetKind("ModernControlPlane")
	s.Expect(s.Client.Get(s.ctx, key("plain"), controlPlane)).To(Succeed())

	managed := stage.MachineDeployment(topology, "topology-md-0", stage.Declared{})
	managed.Labels[clusterv1.ClusterTopologyOwnedLabel] = ""
	managed.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = "md-0"
	managed.OwnerReferences = []metav1.OwnerReference{stage.ControlledBy(topology, "Cluster")}
	var f family
	for _, md := range []*clusterv1.MachineDeployment{workers, managed} {
		if md == managed {
			s.Expect(s.Client.Create(s.ctx, md)).To(Succeed())
		}
		ms := stage.MachineSet(md, namespace+"-"+md.Name+"-1")
		s.Expect(s.Client.Create(s.ctx, ms)).To(Succeed())
		m := stage.Machine(ms, ms.Name+"-a")
		s.Expect(s.Client.Create(s.ctx, m)).To(Succeed())
		if md == managed {
			f.ofTopology = []client.Object{md, ms, m}
		} else {
			f.ofPlain = []client.Object{ms, m}
		}
		if md == workers {
			first := stage.Machine(ms, namespace+"-cp-0")
			first.Labels = map[string]string{clusterv1.ClusterNameLabel: "plain", clusterv1.MachineControlPlaneLabel: ""}
			first.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(controlPlane, controlPlane.GroupVersionKind())}
			s.Expect(s.Client.Create(s.ctx, first)).To(Succeed())
			f.ofControlPlane = first
		}
	}
	return f
}

func TestTheFleetIsAsInGit(t *testing.T) {
	s := newScene(t)
	s.installChart(kustomization{}, "self")
	for name, tool := range tools() {
		t.Run(name, func(t *testing.T) { testFleet(s.in(t), name, tool) })
	}
}

func testFleet(s *scene, namespace string, tool tool) {
	s.Expect(s.Client.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	git := fleetOf(s, namespace)
	tool.apply(s, git)
	f := s.bear(namespace)
	s.inherits(f, map[string]string{"team": "ml"}, map[string]string{"contact": "ml@example.com"})
	s.eventuallyHas(git[2], "capacity.cluster-autoscaler.kubernetes.io/labels", "node.cluster.x-k8s.io/pool=gpu")
	s.settle(tool, git)
	s.untracked(tool, f)

	declare(s, git, map[string]any{"team": "research", "floor": "3"}, map[string]any{"contact": "research@example.com"})
	tool.apply(s, git)
	s.inherits(f, map[string]string{"team": "research", "floor": "3"}, map[string]string{"contact": "research@example.com"})
	s.settle(tool, git)

	declare(s, git, map[string]any{"team": nil, "floor": nil}, map[string]any{"contact": nil})
	tool.apply(s, git)
	s.inherits(f, map[string]string{"team": "", "floor": ""}, map[string]string{"contact": ""})
	s.settle(tool, git)
	s.untracked(tool, f)
}

// declare changes labels and annotations at all places where the manifests declare them for their children; nil removes an entry.
func declare(s *scene, git []*unstructured.Unstructured, labels, annotations map[string]any) {
	s.t.Helper()
	for _, place := range []struct {
		object int
		path   []string
	}{
		{1, []string{"spec", "machineTemplate"}}, {2, []string{"spec", "template"}}, {3, []string{"spec", "template"}},
	} {
		change(s, git[place.object].Object, labels, append(place.path, "metadata", "labels")...)
		change(s, git[place.object].Object, annotations, append(place.path, "metadata", "annotations")...)
	}
	deployments, _, err := unstructured.NestedSlice(git[5].Object, "spec", "topology", "workers", "machineDeployments")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(deployments).To(HaveLen(1))
	md, _ := deployments[0].(map[string]any)
	change(s, md, labels, "metadata", "labels")
	change(s, md, annotations, "metadata", "annotations")
	s.Expect(unstructured.SetNestedSlice(git[5].Object, deployments, "spec", "topology", "workers", "machineDeployments")).To(Succeed())
}

func change(s *scene, object map[string]any, values map[string]any, path ...string) {
	s.t.Helper()
	declared, _, err := unstructured.NestedMap(object, path...)
	s.Expect(err).NotTo(HaveOccurred())
	if declared == nil {
		declared = map[string]any{}
	}
	for key, value := range values {
		declared[key] = value
		if value == nil {
			delete(declared, key)
		}
	}
	if len(declared) == 0 {
		unstructured.RemoveNestedField(object, path...)
		return
	}
	s.Expect(unstructured.SetNestedMap(object, declared, path...)).To(Succeed())
}

// inherits waits until every child has these labels and annotations; keys with an empty value must be missing.
func (s *scene) inherits(f family, labels, annotations map[string]string) {
	s.t.Helper()
	s.Eventually(func(g Gomega) {
		for _, o := range f.all() {
			g.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			g.Expect(o.GetName()).To(Not(BeEmpty()))
			gotLabels, gotAnnotations := declaredBy(o)
			expectMap(g, gotLabels, labels, o.GetName())
			expectMap(g, gotAnnotations, annotations, o.GetName())
		}
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

func expectMap(g Gomega, got, want map[string]string, name string) {
	for key, value := range want {
		if value == "" {
			g.Expect(got).NotTo(HaveKey(key), name)
		} else {
			g.Expect(got).To(HaveKeyWithValue(key, value), name)
		}
	}
}

// declaredBy returns the labels and annotations of a Machine, or the declarations of another object for its Machines.
func declaredBy(o client.Object) (labels, annotations map[string]string) {
	switch o := o.(type) {
	case *clusterv1.MachineDeployment:
		return o.Spec.Template.Labels, o.Spec.Template.Annotations
	case *clusterv1.MachineSet:
		return o.Spec.Template.Labels, o.Spec.Template.Annotations
	default:
		return o.GetLabels(), o.GetAnnotations()
	}
}

func (s *scene) eventuallyHas(o *unstructured.Unstructured, annotation, value string) {
	s.t.Helper()
	s.Eventually(func() map[string]string { return s.live([]*unstructured.Unstructured{o})[0].GetAnnotations() }).
		WithTimeout(patience).WithPolling(polling).Should(HaveKeyWithValue(annotation, value), "Heirloom adds it to an object in Git")
}

// untracked expects that the tool tracks no child: it would prune the child.
func (s *scene) untracked(tool tool, f family) {
	s.t.Helper()
	for _, o := range f.all() {
		s.Expect(s.Client.Get(s.ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		templateLabels, templateAnnotations := declaredBy(o)
		for _, keys := range []map[string]string{o.GetLabels(), o.GetAnnotations(), templateLabels, templateAnnotations} {
			for key := range keys {
				s.Expect(tool.tracks(key)).To(BeFalse(), "%s has %s", o.GetName(), key)
			}
		}
	}
}

func toJSON(s *scene, o *unstructured.Unstructured) []byte {
	s.t.Helper()
	raw, err := json.Marshal(o)
	s.Expect(err).NotTo(HaveOccurred())
	return []byte(strings.TrimSpace(string(raw)))
}
