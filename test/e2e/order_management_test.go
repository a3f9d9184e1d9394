// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/ownership"
	"github.com/heirloom-dev/heirloom/test/clusterapi"
	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// management is a management cluster with Cluster API's managers and Heirloom, and without any Cluster.
type management struct {
	*stage.Stage
	managers *clusterapi.Managers
	dir      string
}

// another makes another management cluster beside the one that this world has, with the same programs.
func (w *world) another(options clusterapi.Options) *management {
	w.t.Helper()
	m := &management{dir: filepath.Join(w.dir, "another")}
	w.Expect(os.Mkdir(m.dir, 0o700)).To(Succeed())
	var err error
	m.Stage, err = stage.New(w.ctx, stage.Options{
		Program: binary(w.t, "heirloom"), Dir: m.dir, ControlPlane: controlplane.Options{AuditLog: m.audited()},
	})
	w.Expect(err).NotTo(HaveOccurred())
	first := w.Stage
	w.t.Cleanup(func() {
		if w.t.Failed() {
			log, _ := os.ReadFile(filepath.Join(m.dir, "heirloom.log"))
			w.t.Logf("heirloom.log of the other management cluster:\n%s", log)
		}
		if w.Stage != first {
			w.swap(m) // the world ends with what it began with
		}
		if m.managers != nil {
			w.Expect(m.managers.Stop()).To(Succeed())
		}
		w.Expect(m.Stop()).To(Succeed())
	})
	options.Dir = m.dir
	m.managers, err = clusterapi.Start(w.ctx, m.ControlPlane, options)
	w.Expect(err).NotTo(HaveOccurred())
	return m
}

// audited is the API server's audit log.
func (m *management) audited() string { return filepath.Join(m.dir, "audit.log") }

// swap makes the world's management cluster the other one.
func (w *world) swap(m *management) {
	w.Stage, m.Stage = m.Stage, w.Stage
	w.managers, m.managers = m.managers, w.managers
	w.dir, m.dir = m.dir, w.dir
}

// move moves the world's Clusters with clusterctl.
func (w *world) move(to *management) {
	w.t.Helper()
	clusterctl := controlplane.Clusterctl{Dir: w.dir, Kubeconfig: filepath.Join(w.dir, "source.kubeconfig")}
	w.Expect(clusterctl.Configure("")).To(Succeed())
	target := filepath.Join(w.dir, "target.kubeconfig")
	w.Expect(w.WriteKubeconfig(clusterctl.Kubeconfig, "admin", "system:masters")).To(Succeed())
	w.Expect(to.WriteKubeconfig(target, "admin", "system:masters")).To(Succeed())
	for _, c := range []client.Client{w.Client, to.Client} {
		w.labelCRDs(c)
	}
	w.Expect(w.infra.Detach()).To(Succeed())
	w.audited = append(w.audited, to.audited())
	_, err := clusterctl.Run(w.ctx, "move", "--to-kubeconfig", target, "--namespace", w.cluster.Namespace)
	w.Expect(err).NotTo(HaveOccurred())
	w.swap(to)
	w.Expect(w.infra.Attach(w.ctx, w.AdminConfig())).To(Succeed())
}

// labelCRDs labels the CRDs of Cluster API and its providers as clusterctl does when it installs them: it moves no others.
func (w *world) labelCRDs(c client.Client) {
	for _, crd := range w.list(c, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}) {
		if strings.HasSuffix(crd.GetName(), ".cluster.x-k8s.io") {
			patch := []byte(`{"metadata":{"labels":{"` + clusterctlv1.ClusterctlLabel + `":""}}}`)
			w.Expect(c.Patch(w.ctx, &crd, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
	}
}

// pause pauses or resumes the Cluster.
func (w *world) pause(paused bool) {
	w.t.Helper()
	w.Expect(w.Client.Get(w.ctx, client.ObjectKeyFromObject(w.cluster), w.cluster)).To(Succeed())
	before := w.cluster.DeepCopy()
	w.cluster.Spec.Paused = &paused
	w.Expect(w.Client.Patch(w.ctx, w.cluster, client.MergeFrom(before))).To(Succeed())
}

// stored returns all that a backup of the Cluster's Namespace has to hold: Secrets, and every object of Cluster API and its
// providers, the Cluster last, as Velero restores it by default.
func (w *world) stored() []unstructured.Unstructured {
	w.t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(w.AdminConfig())
	w.Expect(err).NotTo(HaveOccurred())
	lists, err := c.ServerPreferredNamespacedResources()
	w.Expect(err).NotTo(HaveOccurred())
	kinds := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Secret")}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		w.Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			if strings.HasSuffix(version.Group, "cluster.x-k8s.io") && slices.Contains(resource.Verbs, "list") {
				kinds = append(kinds, version.WithKind(resource.Kind))
			}
		}
	}
	slices.SortStableFunc(kinds, func(a, b schema.GroupVersionKind) int { return cmp.Compare(rank(a), rank(b)) })
	var objects []unstructured.Unstructured
	for _, kind := range kinds {
		for _, object := range w.list(w.Client, kind) {
			if object.GetNamespace() == w.cluster.Namespace {
				objects = append(objects, object)
			}
		}
	}
	return objects
}

func rank(kind schema.GroupVersionKind) int {
	if kind.Kind == "Cluster" {
		return 1
	}
	return 0
}

// lose takes a backup of the paused Cluster, has its management cluster lost, and restores it in what is there then.
func (w *world) lose(how func()) {
	w.t.Helper()
	w.pause(true)
	backup := w.stored()
	w.Expect(w.infra.Detach()).To(Succeed())
	how()
	w.restore(backup)
	w.Expect(w.infra.Attach(w.ctx, w.AdminConfig())).To(Succeed())
	w.pause(false)
}

// wipe leaves the management cluster as if it were a new one, with programs that remember nothing.
func (w *world) wipe() {
	w.t.Helper()
	for _, object := range w.stored() {
		w.Expect(w.Client.Delete(w.ctx, &object)).To(Succeed())
		if len(object.GetFinalizers()) > 0 {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			w.Expect(w.Client.Patch(w.ctx, &object, patch)).To(Succeed())
		}
	}
	w.Expect(w.stored()).To(BeEmpty())
	w.Expect(w.managers.Switch(w.ctx, false)).To(Succeed())
}

// restore creates objects anew from a backup: without what only the lost API server knew, without status, and without owner
// references, which would name UIDs that are gone.
func (w *world) restore(backup []unstructured.Unstructured) {
	w.t.Helper()
	for i := range backup {
		object := backup[i].DeepCopy()
		unstructured.RemoveNestedField(object.Object, "status")
		object.SetUID("")
		object.SetResourceVersion("")
		object.SetGeneration(0)
		object.SetCreationTimestamp(metav1.Time{})
		object.SetManagedFields(nil)
		object.SetOwnerReferences(nil)
		w.Expect(w.Client.Create(w.ctx, object, client.FieldOwner("velero-server"))).To(Succeed(), object.GetKind())
	}
}

// owned says what is Heirloom's of each object of the chain.
func (w *world) owned() map[string]string {
	all := map[string]string{}
	for _, kind := range chain() {
		for _, object := range w.list(w.Client, kind) {
			for _, entry := range object.GetManagedFields() {
				if ownership.IsOurs(entry) {
					all[kind.Kind+" "+object.GetName()] = entry.FieldsV1.GetRawString()
				}
			}
		}
	}
	return all
}
