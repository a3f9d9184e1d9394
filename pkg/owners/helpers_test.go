// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(s)).To(Succeed())
	utilruntime.Must(clusterv1.AddToScheme(s))
	return s
}

// reader holds objects, indexed as the informer caches are, and counts what it is asked for.
type reader struct {
	client.Reader
	gets int
	err  error
}

func holds(t *testing.T, objects ...client.Object) *reader {
	t.Helper()
	builder := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...)
	for _, i := range indexes() {
		builder = builder.WithIndex(i.object, i.field, i.values)
	}
	return &reader{Reader: builder.Build()}
}

func (r *reader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	r.gets++
	if r.err != nil {
		return r.err
	}
	return r.Reader.Get(ctx, key, into, options...)
}

// admission is what the webhooks read with: a cache and, unless it is nil, the API server behind it.
func admission(cache, live client.Reader, count func(metrics.LookupResult)) client.Reader {
	cached := Cached{Reader: cache, Count: count}
	if live == nil {
		return cached
	}
	return CachedThenLive{Cached: cached, Live: live}
}

// named is an object in namespace ns. Its UID is its name; owner is "<kind>/<name>" of its controller, in short for
// cluster.x-k8s.io, or "<apiVersion> <kind>/<name>#<uid>" in full.
func named(name, owner string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}
	if owner == "" {
		return m
	}
	apiVersion, rest, ok := strings.Cut(owner, " ")
	if !ok {
		apiVersion, rest = "cluster.x-k8s.io/v1beta2", owner
	}
	kind, ownerName, _ := strings.Cut(rest, "/")
	ownerName, uid, ok := strings.Cut(ownerName, "#")
	if !ok {
		uid = ownerName
	}
	controls := true
	m.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"},
		{APIVersion: apiVersion, Kind: kind, Name: ownerName, UID: types.UID(uid), Controller: &controls},
	}
	return m
}

func machine(name, owner string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: named(name, owner), Spec: clusterv1.MachineSpec{ClusterName: "c"}}
}

func machineSet(owner string) *clusterv1.MachineSet {
	return &clusterv1.MachineSet{ObjectMeta: named("ms", owner), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}}
}

func machineDeployment(name string) *clusterv1.MachineDeployment {
	return &clusterv1.MachineDeployment{ObjectMeta: named(name, ""), Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c"}}
}

// declaring gives an owner a label for its Machines.
func declaring(template *clusterv1.MachineTemplateSpec, key string) {
	template.Labels = map[string]string{key: "1"}
}

func names(keys []types.NamespacedName) []string {
	var all []string
	for _, key := range keys {
		all = append(all, key.Name)
	}
	return all
}
