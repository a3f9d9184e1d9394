// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/managedfields"
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
func (w *world) another(s setting) *management {
	w.t.Helper()
	m := &management{dir: filepath.Join(w.dir, "another")}
	w.Expect(os.Mkdir(m.dir, 0o700)).To(Succeed())
	s.heirloom = true
	var err error
	m.Stage, m.managers, err = w.startManagement(m.dir, s)
	first := w.Stage
	w.whole.Cleanup(func() {
		if w.whole.Failed() {
			log, _ := os.ReadFile(filepath.Join(m.dir, "heirloom.log"))
			w.whole.Logf("heirloom.log of the other management cluster:\n%s", log)
		}
		if w.Stage != first {
			w.swap(m) // the world ends with what it began with
		}
		var stopped []error
		if m.managers != nil {
			stopped = append(stopped, m.managers.Stop())
		}
		if m.Stage != nil {
			stopped = append(stopped, m.Stop())
		}
		w.Expect(errors.Join(stopped...)).To(Succeed())
	})
	w.Expect(err).NotTo(HaveOccurred())
	return m
}

// swap makes the world's management cluster the other one.
func (w *world) swap(m *management) {
	w.Stage, m.Stage = m.Stage, w.Stage
	w.managers, m.managers = m.managers, w.managers
	w.dir, m.dir = m.dir, w.dir
	w.watch()
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
	w.audits = append(w.audits, &auditLog{path: auditLogIn(to.dir)})
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

// pause pauses or resumes every Cluster.
func (w *world) pause(paused bool) {
	w.t.Helper()
	list := &clusterv1.ClusterList{}
	w.Expect(w.Client.List(w.ctx, list)).To(Succeed())
	for i := range list.Items {
		cluster := &list.Items[i]
		before := cluster.DeepCopy()
		cluster.Spec.Paused = &paused
		w.Expect(w.Client.Patch(w.ctx, cluster, client.MergeFrom(before))).To(Succeed())
	}
}

// stored returns all that a backup of the Clusters' Namespace has to hold: Secrets, and every object of Cluster API and its
// providers, the Clusters last, as Velero restores them by default.
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

// lose takes a backup of the paused Clusters, has their management cluster lost, and restores them in what is there then.
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
	for _, object := range slices.Backward(w.stored()) { // a class only after the Clusters that it has
		w.Eventually(func() error { return client.IgnoreNotFound(w.Client.Delete(w.ctx, &object)) }).Should(Succeed())
		if len(object.GetFinalizers()) > 0 {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			w.Expect(client.IgnoreNotFound(w.Client.Patch(w.ctx, &object, patch))).To(Succeed())
		}
	}
	w.Expect(w.stored()).To(BeEmpty())
	w.Expect(w.managers.Switch(w.ctx, false)).To(Succeed())
}

// restore creates objects anew from a backup: without what only the lost API server knew, without status, and without owner
// references, which would name UIDs that are gone. On a busy machine, managers that have just started may not answer within the ten
// seconds that Cluster API's webhooks have. An object that is refused because of that is created once they answer.
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
		w.Eventually(func() error {
			err := w.Client.Create(w.ctx, object.DeepCopy(), client.FieldOwner("velero-server"))
			if err != nil && !unanswered.MatchString(err.Error()) {
				return StopTrying("it is refused").Wrap(err)
			}
			return err
		}).Should(Succeed(), object.GetKind())
	}
}

// unanswered is what an API server says if it has waited in vain for a webhook of Cluster API.
var unanswered = regexp.MustCompile(`failed calling webhook "[^"]*\.cluster\.x-k8s\.io": .*context deadline exceeded`)

// expectRebuilt waits until Cluster API has brought a restored Cluster to where it was. On a busy machine it may miss that the
// infrastructure is ready, also without Heirloom. It looks again after its sync period of ten minutes.
func (w *world) expectRebuilt() {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		w.giveBackBootstrapData(g)
		w.built(g)
	}).WithTimeout(15 * patience).Should(Succeed())
}

// giveBackBootstrapData does what you may have to do when you restore a control plane with Cluster API v1.14, also without Heirloom.
// A KubeadmControlPlane that adopts a Machine takes the Secrets of its KubeadmConfig. It means to leave the bootstrap data, but knows
// that Secret by the KubeadmConfig's status, which is in no backup. A KubeadmConfig that has lost its Secret waits for ever
// (kubernetes-sigs/cluster-api#13937).
func (w *world) giveBackBootstrapData(g Gomega) {
	for _, config := range w.list(w.Client, bootstrapv1.GroupVersion.WithKind("KubeadmConfig")) {
		secret := &corev1.Secret{}
		err := w.Client.Get(w.ctx, client.ObjectKeyFromObject(&config), secret)
		g.Expect(client.IgnoreNotFound(err)).To(Succeed())
		if owner := metav1.GetControllerOf(secret); owner != nil && owner.Kind == "KubeadmControlPlane" {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))
			g.Expect(w.Client.Patch(w.ctx, secret, patch)).To(Succeed())
		}
	}
}

// owned says what is Heirloom's of each object of the chain.
func (w *world) owned() map[string]string {
	all := map[string]string{}
	for _, kind := range chain() {
		for _, object := range w.list(w.Client, kind) {
			for _, entry := range object.GetManagedFields() {
				if managedfields.IsOurs(entry) {
					all[kind.Kind+" "+object.GetName()] = entry.FieldsV1.GetRawString()
				}
			}
		}
	}
	return all
}
