// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/heirloom-dev/heirloom/pkg/config"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// perSet is how many Machines one MachineSet has.
const perSet = 100

// BenchmarkCache reports how much heap the program's cache takes for each Machine and for each Node, with its indexes, when they
// come as an API server sends them: with the managed fields of five managers, conditions, images and what kubelets and others
// write on Nodes.
func BenchmarkCache(b *testing.B) {
	const count = 10_000
	for name, sent := range map[string]func(n int) []byte{"Machine": machineSent, "Node": nodeSent} {
		b.Run(name, func(b *testing.B) {
			total := uint64(0)
			for b.Loop() {
				total += heapOf(b, name, count, sent)
			}
			b.ReportMetric(float64(total)/float64(b.N)/count, "B/"+name)
		})
	}
}

// heapOf returns the heap, in bytes, that a cache holds more with that many objects of a kind than without.
func heapOf(b *testing.B, kind string, count int, sent func(n int) []byte) uint64 {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	empty, filled := newFilled(b, ctx, kind, 0, sent), uint64(0)
	var before, after runtime.MemStats
	settle(&before)
	full := newFilled(b, ctx, kind, count, sent)
	settle(&after)
	filled = after.HeapAlloc - before.HeapAlloc
	runtime.KeepAlive(empty)
	runtime.KeepAlive(full)
	return filled
}

func settle(stats *runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(stats)
}

// newFilled returns the program's cache with that many objects of a kind, and none of the others.
func newFilled(tb testing.TB, ctx context.Context, kind string, count int, sent func(n int) []byte) cache.Cache {
	tb.Helper()
	options := cacheOptions(&config.Config{})
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Cluster", "ClusterClass", "MachineDeployment", "MachineSet", "MachinePool", "Machine"} {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	options.Scheme, options.Mapper, options.HTTPClient = newScheme(), mapper, http.DefaultClient
	options.NewInformer = func(
		_ toolscache.ListerWatcher, example apiruntime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		n := 0
		if strings.HasSuffix(fmt.Sprintf("%T", example), "."+kind) {
			n = count
		}
		return toolscache.NewSharedIndexInformer(sends{tb, n, example, sent}, example, resync, indexers)
	}
	c, err := cache.New(&rest.Config{}, options)
	if err != nil {
		tb.Fatal(err)
	}
	if err := owners.Prepare(ctx, c, true); err != nil {
		tb.Fatal(err)
	}
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		tb.Fatal("the cache was not filled")
	}
	return c
}

// sends is an API server that sends that many objects of a kind.
type sends struct {
	tb      testing.TB
	count   int
	example apiruntime.Object
	sent    func(n int) []byte
}

// IsWatchListSemanticsUnSupported tells client-go to list.
func (sends) IsWatchListSemanticsUnSupported() bool { return true }

// List implements toolscache.ListerWatcher.
func (s sends) List(metav1.ListOptions) (apiruntime.Object, error) {
	if _, ok := s.example.(*corev1.Node); ok {
		return decoded[corev1.Node](s, &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, func(l *corev1.NodeList, n corev1.Node) {
			l.Items = append(l.Items, n)
		})
	}
	return decoded[clusterv1.Machine](s, &clusterv1.MachineList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, func(l *clusterv1.MachineList, m clusterv1.Machine) {
		l.Items = append(l.Items, m)
	})
}

func decoded[T any, L apiruntime.Object](s sends, list L, add func(L, T)) (apiruntime.Object, error) {
	for n := range s.count {
		var one T
		if err := json.Unmarshal(s.sent(n), &one); err != nil {
			return nil, err
		}
		add(list, one)
	}
	return list, nil
}

// Watch implements toolscache.ListerWatcher.
func (sends) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

func encoded(object any) []byte {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return raw
}

// declaredHere are labels and annotations that a MachineSet declares and that reach Machines and Nodes.
func declaredHere(into metav1.Object) {
	labels, annotations := into.GetLabels(), into.GetAnnotations()
	for i := range 10 {
		labels[fmt.Sprintf("node.cluster.x-k8s.io/label-%d", i)] = "value-of-a-label"
	}
	for i := range 5 {
		annotations[fmt.Sprintf("node.cluster.x-k8s.io/annotation-%d", i)] = "value of an annotation"
	}
}

func managers(object metav1.Object) {
	fields := []string{
		`{"f:metadata":{"f:labels":{"f:cluster.x-k8s.io/cluster-name":{}}}}`,
		`{"f:metadata":{"f:labels":{` + strings.Repeat(`"f:cluster.x-k8s.io/a-label":{},`, 30) + `"f:a":{}}}}`,
	}
	entries := []metav1.ManagedFieldsEntry{
		{Manager: "capi-machineset", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(fields[1])},
		{Manager: "manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(fields[1])},
		{Manager: "manager", Operation: "Update", Subresource: "status", FieldsV1: metav1.NewFieldsV1(fields[1])},
		{Manager: "kubectl-edit", Operation: "Update", FieldsV1: metav1.NewFieldsV1(fields[0])},
		{Manager: "heirloom", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(ours())},
	}
	at := metav1.NewTime(object.GetCreationTimestamp().Add(time.Hour))
	for i := range entries {
		entries[i].APIVersion, entries[i].FieldsType, entries[i].Time = clusterv1.GroupVersion.String(), "FieldsV1", &at
	}
	object.SetManagedFields(entries)
}

// ours is what Heirloom's entry of a Machine lists.
func ours() string {
	o := &metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}
	declaredHere(o)
	fields := map[string]any{"f:metadata": map[string]any{"f:labels": named(o.Labels), "f:annotations": named(o.Annotations)}}
	return string(encoded(fields))
}

func named(keys map[string]string) map[string]any {
	fields := map[string]any{}
	for key := range keys {
		fields["f:"+key] = map[string]any{}
	}
	return fields
}

// metadataOf is that of the n-th object.
func metadataOf(n int, prefix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: machineName(n), UID: types.UID(fmt.Sprintf("%s-0000-4000-8000-%012d", prefix, n)), ResourceVersion: fmt.Sprint(1000 + n), Generation: 3,
		CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000+int64(n), 0).UTC()), Labels: map[string]string{}, Annotations: map[string]string{},
	}
}

func machineName(n int) string { return fmt.Sprintf("prod-md-%d-x7k2p-%05d", n/perSet, n) }

func addressOf(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255) }

// machineSent is the n-th Machine as an API server sends it.
func machineSent(n int) []byte {
	m := &clusterv1.Machine{TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"}, ObjectMeta: metadataOf(n, "aaaaaaaa")}
	set := fmt.Sprintf("prod-md-%d-x7k2p", n/perSet)
	m.Namespace, m.Finalizers = "fleet", []string{clusterv1.MachineFinalizer}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&metav1.ObjectMeta{Name: set, UID: types.UID(fmt.Sprintf("bbbbbbbb-0000-4000-8000-%012d", n/perSet))}, clusterv1.GroupVersion.WithKind("MachineSet"))}
	m.Labels[clusterv1.ClusterNameLabel], m.Labels[clusterv1.MachineSetNameLabel] = "prod", set
	m.Labels[clusterv1.MachineDeploymentNameLabel], m.Labels["machine-template-hash"] = fmt.Sprintf("prod-md-%d", n/perSet), "1234567890-x7k2p"
	declaredHere(m)
	managers(m)
	m.Spec = clusterv1.MachineSpec{
		ClusterName: "prod", ProviderID: fmt.Sprintf("aws:///us-east-1a/i-%017d", n), Version: "v1.36.0", FailureDomain: "us-east-1a",
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "AWSMachine", Name: m.Name},
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: m.Name,
		}},
		Taints: []clusterv1.MachineTaint{
			{Key: "gpu", Value: "true", Effect: "NoSchedule", Propagation: "Always"}, {Key: "dedicated", Value: "ml", Effect: "NoExecute", Propagation: "Always"},
		},
	}
	m.Status.NodeRef.Name = nodeName(n)
	m.Status.Addresses = clusterv1.MachineAddresses{
		{Type: clusterv1.MachineInternalIP, Address: addressOf(n)}, {Type: clusterv1.MachineInternalDNS, Address: nodeName(n)},
		{Type: clusterv1.MachineHostName, Address: nodeName(n)},
	}
	for i := range 8 {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: fmt.Sprintf("Condition%d", i), Status: "True", Message: "fine"})
	}
	return encoded(m)
}

func nodeName(n int) string {
	return "ip-" + strings.ReplaceAll(addressOf(n), ".", "-") + ".us-east-1.compute.internal"
}

// nodeSent is the n-th Node as an API server sends it.
func nodeSent(n int) []byte {
	node := &corev1.Node{ObjectMeta: metadataOf(n, "cccccccc")}
	node.Name = nodeName(n)
	for key, value := range map[string]string{
		corev1.LabelHostname: nodeName(n), corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelInstanceTypeStable: "m5.xlarge",
		corev1.LabelTopologyZone: "us-east-1a", corev1.LabelTopologyRegion: "us-east-1", "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
		"beta.kubernetes.io/instance-type": "m5.xlarge", "failure-domain.beta.kubernetes.io/zone": "us-east-1a",
		"failure-domain.beta.kubernetes.io/region": "us-east-1", "topology.ebs.csi.aws.com/zone": "us-east-1a", "topology.k8s.aws/zone-id": "use1-az1",
		"node.heirloom.dev/record": "k3k3k3k3", "k8s.io/cloud-provider-aws": "8d5f2c1e5d1f8f3a",
	} {
		node.Labels[key] = value
	}
	declaredHere(node)
	for key, value := range map[string]string{
		clusterv1.ClusterNameAnnotation: "prod", clusterv1.ClusterNamespaceAnnotation: "fleet", clusterv1.MachineAnnotation: machineName(n),
		clusterv1.OwnerKindAnnotation: "MachineSet", clusterv1.OwnerNameAnnotation: fmt.Sprintf("prod-md-%d-x7k2p", n/perSet),
		"csi.volume.kubernetes.io/nodeid":                        fmt.Sprintf(`{"ebs.csi.aws.com":"i-%017d"}`, n),
		"node.alpha.kubernetes.io/ttl":                           "0",
		"volumes.kubernetes.io/controller-managed-attach-detach": "true", "alpha.kubernetes.io/provided-node-ip": addressOf(n),
		clusterv1.LabelsFromMachineAnnotation: strings.Repeat("node.cluster.x-k8s.io/label-0,", 9) + "node.cluster.x-k8s.io/label-9",
	} {
		node.Annotations[key] = value
	}
	managers(node)
	node.Spec = corev1.NodeSpec{ProviderID: fmt.Sprintf("aws:///us-east-1a/i-%017d", n), PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{
		{Key: "gpu", Value: "true", Effect: "NoSchedule"}, {Key: "dedicated", Value: "ml", Effect: "NoExecute"},
	}}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: addressOf(n)}, {Type: corev1.NodeInternalDNS, Address: nodeName(n)},
		{Type: corev1.NodeHostName, Address: nodeName(n)},
	}
	for i := range 40 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/image-%d:v1", i)}})
	}
	for i := range 5 {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprintf("C%d", i)), Message: "fine"})
	}
	return encoded(node)
}
