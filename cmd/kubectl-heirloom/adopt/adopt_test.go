// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// An entry of a Node that nobody declares is found or left out by its key, its writers and the kubelet's configuration.
func TestUndeclaredEntries(t *testing.T) {
	label := func(key string, managers ...string) compare.Entry {
		return compare.Entry{Kind: compare.Label, Key: key, Status: compare.Local, Managers: managers, Of: inherit.Entry{What: "label", Name: key, Own: true}}
	}
	tainted := compare.Entry{Kind: compare.Taint, Key: "node-role.kubernetes.io/control-plane:NoSchedule", Status: compare.Local}
	tainted.Of = inherit.Entry{What: "taint", Name: tainted.Key}
	transient := func(key string) compare.Entry {
		return compare.Entry{Kind: compare.Taint, Key: key, Status: compare.Local, Of: inherit.Entry{What: "taint", Name: key}}
	}
	for name, c := range map[string]struct {
		entry compare.Entry
		want  State
		by    string
	}{
		"nobody knows who has set it":       {label("team"), Adopt, "unknown"},
		"Cluster API wrote it too":          {label("team", "capi-machine", "kubelet", "manager"), Adopt, "kubelet"},
		"every Node has it":                 {label("kubernetes.io/hostname", "kubectl-label"), "", ""},
		"a cloud provider sets it":          {label("topology.kubernetes.io/zone", "cloud-controller-manager"), "", ""},
		"a CSI driver sets it":              {label("topology.ebs.csi.aws.com/zone", "kubelet"), "", ""},
		"a person sets the place":           {label("topology.kubernetes.io/zone", "kubectl-label"), NotPropagated, "kubectl-label"},
		"a controller discovers it":         {label("feature.node.kubernetes.io/cpu", "nfd-master"), "", ""},
		"a discovery keeps it":              {label("nvidia.com/gpu.count", "nfd-master"), "", ""},
		"Cluster API keeps it":              {label("cluster.x-k8s.io/pool", "manager"), "", ""},
		"for Nodes, by Cluster API's rules": {label("node.cluster.x-k8s.io/pool", "kubelet"), Adopt, "kubelet"},
		"Heirloom's own":                    {label("heirloom.node-restriction.kubernetes.io/record", "heirloom"), "", ""},
		"a label of one Node":               {label("k3s.io/hostname", "kubelet"), "", ""},
		"an upgrade keeps it":               {label("plan.upgrade.cattle.io/k3s", "system-upgrade-controller"), "", ""},
		"an autoscaler removes it":          {transient("ToBeDeletedByClusterAutoscaler:NoSchedule"), "", ""},
		"an agent removes it":               {transient("node.cilium.io/agent-not-ready:NoExecute"), "", ""},
		"a start-up taint":                  {transient("readiness.k8s.io/net:NoSchedule"), "", ""},
		"a taint that people set":           {transient("gpu:NoSchedule"), Adopt, "unknown"},
		"reserved for control planes":       {tainted, NotPropagated, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &compare.Object{Node: &compare.Node{Node: &corev1.Node{}}, Entries: []compare.Entry{c.entry}}
			pool := &compare.Object{Ref: inherit.Ref{Kind: "MachineDeployment", Object: &clusterv1.MachineDeployment{}}, Children: []*compare.Object{node}}
			j := judge{Pool: &Pool{Of: pool}, policy: inherit.Policy{SyncAllowed: []string{inherit.SyncAnyKey}}}
			j.look()
			if c.want == "" {
				NewWithT(t).Expect(j.Entries).To(BeEmpty())
				return
			}
			NewWithT(t).Expect(j.Entries).To(HaveLen(1))
			NewWithT(t).Expect(j.Entries[0].State).To(Equal(c.want), j.Entries[0].Message)
			NewWithT(t).Expect(j.Entries[0].setBy()).To(Equal(c.by))
		})
	}
}
