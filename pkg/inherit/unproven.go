// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// MatchedByAddressAnnotation is on a Node that inherits from a Machine it was matched with only by a name or an address. Its value,
// "<name of the Machine>.<HMAC>", names the Machine. A kubelet may write annotations of its Node, so the HMAC covers the Node's
// name and its key is the Machine's UID, which no kubelet knows.
const MatchedByAddressAnnotation = "heirloom.dev/matched-by-address"

// proven reports whether more than a name or an address shows that a Node is this Machine. Kubelets choose their addresses, but only
// Cluster API writes status.nodeRef, and a providerID never changes once it is set.
func proven(node *corev1.Node, m *clusterv1.Machine) bool {
	return node.Name != "" && m.Status.NodeRef.Name == node.Name || m.Spec.ProviderID != "" && m.Spec.ProviderID == node.Spec.ProviderID
}

// SourceFor returns what a Node inherits from the Machine that it matches. If only a name or an address says that the Node is this
// Machine, the source has no labels that a kubelet may not set itself: taints restrict the Node, but these labels may be privileges.
func (p Policy) SourceFor(node *corev1.Node, m *clusterv1.Machine) NodeSource {
	if proven(node, m) {
		return SourceOfMachine(m)
	}
	unproven := *m
	unproven.Labels = filter(m.Labels, func(key string) bool { return !restricted(key) })
	s := SourceOfMachine(&unproven)
	s.matched = recordOf(node, m)
	for key := range m.Labels {
		s.withheld = s.withheld || restricted(key) && (nodeLabel(key) || p.additionalLabel(key))
	}
	return s
}

// SourceForStranger returns what a Node inherits from a Machine that it only matched by a name or an address and never was: nothing.
func SourceForStranger(m *clusterv1.Machine) NodeSource {
	return NodeSource{Ref: Ref{"Machine", m}, Cluster: types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}}
}

// MatchedBefore returns the name of the Machine that a Node claims to have been matched with by a name or an address, or "".
// NoLongerMatches checks the claim.
func MatchedBefore(node *corev1.Node) string {
	record := node.Annotations[MatchedByAddressAnnotation]
	end := strings.LastIndexByte(record, '.')
	if end < 0 {
		return ""
	}
	return record[:end]
}

// NoLongerMatches reports whether the Node carries what it has inherited from this Machine by a name or an address, while the
// Machine now is another Node or has another address. A Machine that reports no addresses contradicts nothing.
func NoLongerMatches(node *corev1.Node, m *clusterv1.Machine) bool {
	if !hmac.Equal([]byte(node.Annotations[MatchedByAddressAnnotation]), []byte(recordOf(node, m))) {
		return false
	}
	return contradicts(node, m) || !proven(node, m) && len(MachineNames(m)) > 0 && !sharesAddress(node, m)
}

func recordOf(node *corev1.Node, m *clusterv1.Machine) string {
	sum := hmac.New(sha256.New, []byte(m.UID))
	sum.Write([]byte(node.Name))
	return m.Name + "." + hex.EncodeToString(sum.Sum(nil))
}
