// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// topologyWith is a topology of that ClusterClass with a section for every kind. Those of workers have that name and class.
func topologyWith(of, name, class string, metadata clusterv1.ObjectMeta) clusterv1.Topology {
	return clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: of}, ControlPlane: clusterv1.ControlPlaneTopology{Metadata: metadata},
		Workers: clusterv1.WorkersTopology{
			MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: name, Class: class, Metadata: metadata}},
			MachinePools:       []clusterv1.MachinePoolTopology{{Name: name, Class: class, Metadata: metadata}},
		},
	}
}

// classWith is the spec of a ClusterClass with a section for every kind.
func classWith(class string, metadata clusterv1.ObjectMeta) clusterv1.ClusterClassSpec {
	return clusterv1.ClusterClassSpec{ControlPlane: clusterv1.ControlPlaneClass{Metadata: metadata}, Workers: clusterv1.WorkersClass{
		MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: class, Metadata: metadata}},
		MachinePools:       []clusterv1.MachinePoolClass{{Class: class, Metadata: metadata}},
	}}
}

func withLabel(key string) clusterv1.ObjectMeta {
	return clusterv1.ObjectMeta{Labels: map[string]string{key: "1"}}
}

// managedCluster is ns/c, of ClusterClass ns/cc.
func managedCluster() *clusterv1.Cluster {
	topology := topologyWith("cc", "a", "small", withLabel("fromCluster"))
	return &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Topology: topology}}
}

func clusterClass() *clusterv1.ClusterClass {
	return &clusterv1.ClusterClass{ObjectMeta: named("cc", ""), Spec: classWith("small", withLabel("fromClass"))}
}

// ofTopology makes an object one that the topology of ns/c manages, by the sections of name a.
func ofTopology(object metav1.Object) {
	object.SetLabels(map[string]string{
		"cluster.x-k8s.io/cluster-name": "c", "topology.cluster.x-k8s.io/owned": "",
		"topology.cluster.x-k8s.io/deployment-name": "a", "topology.cluster.x-k8s.io/pool-name": "a",
	})
}

// byTopology asks what an object of each kind inherits from its topology, after a change.
var byTopology = map[string]func(context.Context, *Chain, inherit.Policy, func(metav1.Object)) (Decision, error){
	"a ControlPlane": func(ctx context.Context, c *Chain, p inherit.Policy, change func(metav1.Object)) (Decision, error) {
		cp := &inherit.ControlPlane{TypeMeta: metav1.TypeMeta{APIVersion: acme, Kind: "AcmeControlPlane"}, ObjectMeta: named("cp", "")}
		change(cp)
		return ControlPlanes().Evaluate(ctx, c, cp, p)
	},
	"a MachineDeployment": func(ctx context.Context, c *Chain, p inherit.Policy, change func(metav1.Object)) (Decision, error) {
		md := machineDeployment("workers")
		change(md)
		return MachineDeployments().Evaluate(ctx, c, md, p)
	},
	"a MachinePool": func(ctx context.Context, c *Chain, p inherit.Policy, change func(metav1.Object)) (Decision, error) {
		mp := &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c"}}
		change(mp)
		return MachinePools().Evaluate(ctx, c, mp, p)
	},
}

func pause(object metav1.Object) {
	object.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
}

func label(key, value string) func(metav1.Object) {
	return func(object metav1.Object) {
		labels := map[string]string{key: value}
		for k, v := range object.GetLabels() {
			labels[k] = v
		}
		object.SetLabels(labels)
	}
}

func deleting(object metav1.Object) {
	object.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
}

// TestTopologyInherits is about which objects are skipped, and about which Cluster and ClusterClass count.
func TestTopologyInherits(t *testing.T) {
	watched := inherit.Policy{WatchFilter: "blue"}
	for _, tc := range []struct {
		name   string
		policy inherit.Policy
		// object and cluster change what would inherit otherwise; without is what is not cached.
		object   func(metav1.Object)
		cluster  func(*clusterv1.Cluster)
		without  string
		inherits bool
		why      inherit.Reason
	}{
		{name: "what ClusterClass and Cluster declare is inherited", inherits: true},
		{name: "an object that another instance watches is skipped", policy: watched, why: "it does not carry the label cluster.x-k8s.io/watch-filter=blue"},
		{name: "an object that this instance watches inherits", policy: watched, object: label(clusterv1.WatchLabel, "blue"), inherits: true},
		{name: "a paused object is skipped", object: pause, why: inherit.IsPaused},
		{name: "an object that opted out is skipped", object: label(inherit.IgnoreLabel, ""), why: inherit.IsIgnored},
		{name: "an object that is being deleted is skipped", object: deleting, why: inherit.IsDeleted},
		{name: "an object of a paused Cluster is skipped", cluster: func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }, why: inherit.ClusterIsPaused},
		{name: "an object of a Cluster that opted out is skipped", cluster: func(c *clusterv1.Cluster) { label(inherit.IgnoreLabel, "")(c) }, why: inherit.ClusterIsIgnored},
		{name: "an object of no topology inherits nothing", object: func(o metav1.Object) { o.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "c"}) }, why: inherit.NothingDeclares},
		{name: "an object without labels inherits nothing", object: func(o metav1.Object) { o.SetLabels(nil) }, why: inherit.NothingDeclares},
		{name: "an object of another namespace inherits nothing", object: func(o metav1.Object) { o.SetNamespace("other") }, why: inherit.NothingDeclares},
		{name: "an object of a Cluster without a topology inherits nothing", cluster: func(c *clusterv1.Cluster) { c.Spec.Topology = clusterv1.Topology{} }, why: inherit.NothingDeclares},
		{name: "an object whose Cluster is not there inherits nothing", without: "Cluster", why: inherit.NothingDeclares},
		{name: "an object whose ClusterClass is not there inherits nothing", without: "ClusterClass", why: inherit.NothingDeclares},
		{name: "an object that the topology does not name any more inherits nothing", why: inherit.NothingDeclares, cluster: func(c *clusterv1.Cluster) {
			c.Spec.Topology = topologyWith("cc", "b", "small", withLabel("fromCluster"))
			c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.ControlPlaneGroup, Kind: "AcmeControlPlane", Name: "another"}
		}},
	} {
		for kind, asks := range byTopology {
			t.Run(tc.name+" as "+kind, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				cluster := managedCluster()
				if tc.cluster != nil {
					tc.cluster(cluster)
				}
				cached := []client.Object{cluster, clusterClass()}
				switch tc.without {
				case "Cluster":
					cached = cached[1:]
				case "ClusterClass":
					cached = cached[:1]
				}
				live := holds(t, managedCluster(), clusterClass())

				found, err := asks(t.Context(), &Chain{Reader: admission(holds(t, cached...), live, nil)}, tc.policy, func(object metav1.Object) {
					ofTopology(object)
					if tc.object != nil {
						tc.object(object)
					}
				})

				Expect(err).NotTo(HaveOccurred())
				Expect(live.gets).To(BeZero(), "a topology is not worth a call")
				Expect(found.Untouched()).To(Equal(!tc.inherits))
				Expect(found.Reason).To(Equal(tc.why))
				if tc.inherits {
					Expect(found.Desired.Top.Labels).To(Equal(map[string]string{"fromClass": "1", "fromCluster": "1"}))
					sources := found.Sources(t.Context())
					Expect(sources.Of(inherit.Entry{What: "label", Name: "fromCluster"}).String()).To(MatchRegexp(`^Cluster ns/c \(spec\.topology\..*metadata\.labels\)$`))
					Expect(sources.Of(inherit.Entry{What: "label", Name: "fromClass"}).String()).To(MatchRegexp(`^ClusterClass ns/cc \(spec\..*metadata\.labels\)$`))
					Expect(live.gets).To(BeZero())
					Expect(found.Problems).NotTo(HaveOccurred())
				}
			})
		}
	}
}

func TestTopologySaysWhatItLeavesOut(t *testing.T) {
	class := clusterClass()
	reserved := []clusterv1.MachineTaint{{Key: "node.kubernetes.io/x", Effect: "NoSchedule", Propagation: "Always"}}
	class.Spec.ControlPlane.Taints, class.Spec.Workers.MachineDeployments[0].Taints, class.Spec.Workers.MachinePools[0].Taints = reserved, reserved, reserved
	for kind, asks := range byTopology {
		found, err := asks(t.Context(), &Chain{Reader: holds(t, managedCluster(), class)}, inherit.Policy{}, ofTopology)
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), kind)
		NewWithT(t).Expect(found.Outcome).To(Equal(inherit.Inherits), kind)
		NewWithT(t).Expect(found.Problems).To(MatchError(ContainSubstring(`taint "node.kubernetes.io/x:NoSchedule"`)), kind)
	}
}

func TestTopologyThatCannotBeRead(t *testing.T) {
	for kind, asks := range byTopology {
		_, err := asks(t.Context(), &Chain{Reader: &reader{err: errors.New("timeout")}}, inherit.Policy{}, ofTopology)
		NewWithT(t).Expect(err).To(MatchError("getting Cluster ns/c: timeout"), kind)
		_, err = asks(t.Context(), &Chain{Reader: withoutClasses{holds(t, managedCluster())}}, inherit.Policy{}, ofTopology)
		NewWithT(t).Expect(err).To(MatchError("getting ClusterClass ns/cc: timeout"), kind)
	}
}

// withoutClasses fails to read ClusterClasses.
type withoutClasses struct{ client.Reader }

func (r withoutClasses) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*clusterv1.ClusterClass); ok {
		return errors.New("timeout")
	}
	return r.Reader.Get(ctx, key, into, options...)
}

// TestOwnersInherits is about rules 4 to 9: which objects are skipped, and that an owner costs one call at most.
func TestOwnersInherits(t *testing.T) {
	watched := inherit.Policy{WatchFilter: "blue"}
	deployment := change(machineDeployment("md"), func(md *clusterv1.MachineDeployment) { declaring(&md.Spec.Template, "inherited") })
	set := change(machineSet(""), func(ms *clusterv1.MachineSet) { declaring(&ms.Spec.Template, "inherited") })
	owners := []client.Object{deployment, set}
	paused := &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Paused: new(true)}}
	for _, tc := range []struct {
		name         string
		policy       inherit.Policy
		object       func(metav1.Object)
		cached, live []client.Object
		inherits     bool
		asked        int
		why          inherit.Reason
	}{
		{name: "an object inherits from its owner", cached: owners, live: owners, inherits: true},
		{name: "an owner that the cache lacks is asked for once", live: owners, inherits: true, asked: 1},
		{name: "an owner that nobody has is asked for once", asked: 1, why: inherit.OwnerIsNotFound},
		{name: "a paused object is skipped", object: pause, cached: owners, why: inherit.IsPaused},
		{name: "an object that opted out is skipped", object: label(inherit.IgnoreLabel, ""), cached: owners, why: inherit.IsIgnored},
		{name: "an object that is being deleted is skipped", object: deleting, cached: owners, why: inherit.IsDeleted},
		{name: "an object of a paused Cluster is skipped", cached: append(owners, paused), why: inherit.ClusterIsPaused},
		{name: "an object that another instance watches is skipped", policy: watched, object: label(clusterv1.WatchLabel, "green"), cached: owners, why: "it does not carry the label cluster.x-k8s.io/watch-filter=blue"},
		{name: "an object that this instance watches inherits", policy: watched, object: label(clusterv1.WatchLabel, "blue"), cached: owners, inherits: true},
	} {
		for kind, asks := range map[string]func(*Chain) (Decision, error){
			"a MachineSet": func(c *Chain) (Decision, error) {
				ms := machineSet("MachineDeployment/md")
				if tc.object != nil {
					tc.object(ms)
				}
				return MachineSets().Evaluate(t.Context(), c, ms, tc.policy)
			},
			"a Machine": func(c *Chain) (Decision, error) {
				m := machine("m", "MachineSet/ms")
				if tc.object != nil {
					tc.object(m)
				}
				return Machines().Evaluate(t.Context(), c, m, tc.policy)
			},
		} {
			t.Run(tc.name+" as "+kind, func(t *testing.T) {
				Expect := NewWithT(t).Expect
				live := holds(t, tc.live...)
				found, err := asks(&Chain{Reader: admission(holds(t, tc.cached...), live, nil)})
				Expect(err).NotTo(HaveOccurred())
				Expect(live.gets).To(Equal(tc.asked))
				Expect(found.Untouched()).To(Equal(!tc.inherits))
				Expect(found.Reason).To(Equal(tc.why))
				if tc.inherits {
					Expect(found.Desired.Top.Labels).To(Equal(map[string]string{"inherited": "1"}))
				}
			})
		}
	}
}
