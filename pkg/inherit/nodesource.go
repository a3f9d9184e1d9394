// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// MatchedByAddressAnnotation is on a Node that inherits from a Machine which it matches only by a name or an address. Its value is "<name
// of the Machine>.<HMAC>". A kubelet may write the annotation, so the HMAC's key is the Machine's UID, which no kubelet knows.
const MatchedByAddressAnnotation = "heirloom.dev/matched-by-address"

// NodeSource is the object from which a Node inherits: its Machine as it will be once the Machine has inherited, or its MachinePool if the
// provider has no Machines.
type NodeSource struct {
	Ref     // the Machine or the MachinePool
	Cluster types.NamespacedName
	// Labels and Annotations are all labels and annotations of the object, not only the keys that rules 11 and 12 propagate.
	Labels, Annotations map[string]string
	ControlPlane        bool
	// Facts says which labels come from facts and not from the object, and from which facts.
	Facts map[string]Fact

	// typed and annotated are the taints that a Node can have. dropped are the entries that are already left out.
	typed, annotated []clusterv1.MachineTaint
	dropped          Drops
	// matched is the value of MatchedByAddressAnnotation, if the Node matches the Machine only by a name or an address.
	matched  string
	named    map[string][]string // the keys that the Cluster names (Policy.Of)
	withheld bool                // the Node does not get all labels, because of matched
	machine  *clusterv1.Machine  // the Machine as it is now; nil without AheadOf
}

// SourceOfMachine returns the source of inheritance for the Node of this Machine.
func SourceOfMachine(m *clusterv1.Machine) NodeSource {
	s := sourceOf(m.Labels, m.Annotations, m.Spec.Taints)
	s.Ref, s.Cluster = Ref{"Machine", m}, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}
	return s
}

// SourceForPool returns the source of inheritance for the Nodes of a MachinePool whose provider has no Machines (rule 9), with the worker role
// and with the keys that the Cluster names. template is the MachinePool's template as it will be once the MachinePool has inherited.
func (p Policy) SourceForPool(mp *clusterv1.MachinePool, template *Template) NodeSource {
	inheritable := func(key string) bool { return !never(key) }
	s := sourceOf(filter(template.Labels, inheritable), filter(template.Annotations, inheritable), template.Taints)
	s.Ref, s.Cluster = Ref{"MachinePool", mp}, types.NamespacedName{Namespace: mp.Namespace, Name: mp.Spec.ClusterName}
	s = s.withRole(p.WorkerRole)
	s.named = p.named
	return s
}

// sourceOf returns the source with these labels, annotations and typed taints. On the same key and effect, the typed taint wins.
func sourceOf(labels, annotations map[string]string, typed []clusterv1.MachineTaint) NodeSource {
	s := NodeSource{Labels: labels, Annotations: annotations, ControlPlane: has(labels, clusterv1.MachineControlPlaneLabel)}
	role := taint.Role(s.ControlPlane)
	at := place{own: true, out: &s.dropped}
	if len(typed) > 0 {
		s.typed = at.usable(role, taint.Merge(typed, nil))
	}
	wins := sets.New[taint.ID]()
	for _, t := range s.typed {
		wins.Insert(taint.MachineID(t))
	}
	s.annotated = slices.DeleteFunc(at.annotated(role, annotations), func(t clusterv1.MachineTaint) bool { return wins.Has(taint.MachineID(t)) })
	return s
}

// SourceFor returns the source of inheritance for a Node that matches the Machine. If it matches only by a name or an address, the source
// has no labels that a kubelet may not set itself: taints restrict the Node, but these labels may be privileges.
func (p Policy) SourceFor(node *corev1.Node, m *clusterv1.Machine) NodeSource {
	s := SourceOfMachine(m).withRole(p.WorkerRole)
	s.named = p.named
	if Proven(node, m) {
		return s
	}
	p = p.naming(s)
	s.matched = matchRecord(node, m)
	s.Labels = filter(s.Labels, func(key string) bool {
		if !restricted(key) {
			return true
		}
		why := p.notOnNode(labelKey, key)
		if why == "" {
			why, s.withheld = DropUnproven, true
		}
		s.dropped.drop(Entry{labelKey, key, true}, why, "", "")
		return false
	})
	return s
}

// SourceForStranger returns an empty source, for a Node that matched the Machine by a name or an address until the Machine turned out to
// have another Node.
func SourceForStranger(m *clusterv1.Machine) NodeSource {
	return NodeSource{Ref: Ref{"Machine", m}, Cluster: types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}}
}

// AheadOf returns the source of a Node whose Machine is m now. Cluster API propagates the Machine as it is. Two rules keep Cluster API and
// Heirloom from undoing each other's writes (docs/design.md §5):
//
//   - A value that the Machine has counts until it changes in the Machine (ahead). Otherwise Cluster API would set the old value again.
//   - An entry that the Machine does not have yet reaches the Node at once, and an annotation of Heirloom lists it: Cluster API removes
//     entries that its own annotation lists and the Machine does not have. The entry stays in Heirloom's annotation until Cluster API lists
//     it in another write; moving it would be a second write.
func (s NodeSource) AheadOf(m *clusterv1.Machine) NodeSource {
	s.machine = m
	return s
}

func (s NodeSource) taintIsAhead(id taint.ID) bool {
	return s.machine != nil && !slices.ContainsFunc(s.machine.Spec.Taints, func(t clusterv1.MachineTaint) bool { return taint.MachineID(t) == id })
}

// Declares returns all entries that the source declares for its Node, without taints that a Node cannot have.
func (s NodeSource) Declares() Content {
	return Content{Labels: s.Labels, Annotations: s.Annotations, Taints: s.taints()}
}

func (s NodeSource) taints() []clusterv1.MachineTaint {
	return taint.Merge(s.typed, s.annotated)
}

// Proven reports whether a nodeRef or a providerID proves that a Node belongs to this Machine. Kubelets choose their names and addresses,
// but only Cluster API writes status.nodeRef, and a providerID never changes once it is set.
func Proven(node *corev1.Node, m *clusterv1.Machine) bool {
	return !contradicts(node, m) && (isReferredTo(node, m) || hasProviderID(node, m))
}

func isReferredTo(node *corev1.Node, m *clusterv1.Machine) bool {
	return node.Name != "" && m.Status.NodeRef.Name == node.Name
}

func hasProviderID(node *corev1.Node, m *clusterv1.Machine) bool {
	return m.Spec.ProviderID != "" && m.Spec.ProviderID == node.Spec.ProviderID
}

// MatchedBefore returns the name of the Machine that a Node claims to have been matched with by a name or an address, or "".
// WasMatched checks the claim.
func MatchedBefore(node *corev1.Node) string {
	record := node.Annotations[MatchedByAddressAnnotation]
	return record[:max(0, strings.LastIndexByte(record, '.'))]
}

// WasMatched reports whether the Node has inherited from this Machine by a name or an address.
func WasMatched(node *corev1.Node, m *clusterv1.Machine) bool {
	return hmac.Equal([]byte(node.Annotations[MatchedByAddressAnnotation]), []byte(matchRecord(node, m)))
}

// NoLongerMatches reports whether a Machine that the Node matched turned out to have another Node. Only the Machine's nodeRef tells: a
// kubelet chooses its addresses and its first providerID, and the addresses of a Machine may be reported from inside it.
func NoLongerMatches(node *corev1.Node, m *clusterv1.Machine) bool {
	return WasMatched(node, m) && m.Status.NodeRef.Name != "" && !isReferredTo(node, m)
}

func matchRecord(node *corev1.Node, m *clusterv1.Machine) string {
	sum := hmac.New(sha256.New, []byte(m.UID))
	sum.Write([]byte(node.Name))
	return m.Name + "." + hex.EncodeToString(sum.Sum(nil))
}

// Match returns the Machine of a Cluster to which a Node belongs, or nil (docs/design.md §4): by status.nodeRef, then by spec.providerID,
// then by an address, which is no proof (Policy.SourceFor). If several Machines fit, the result is nil. A Machine that has another Node
// does not fit.
func Match(node *corev1.Node, machines []*clusterv1.Machine) *clusterv1.Machine {
	for _, fits := range []func(*corev1.Node, *clusterv1.Machine) bool{isReferredTo, hasProviderID, sharesAddress} {
		var match *clusterv1.Machine
		for _, m := range machines {
			switch {
			case !fits(node, m) || contradicts(node, m):
			case match != nil:
				return nil
			default:
				match = m
			}
		}
		if match != nil {
			return match
		}
	}
	return nil
}

// contradicts reports whether Node and Machine name different instances, for example because a new Node took over an old Node's name.
func contradicts(node *corev1.Node, m *clusterv1.Machine) bool {
	return m.Spec.ProviderID != "" && node.Spec.ProviderID != "" && m.Spec.ProviderID != node.Spec.ProviderID ||
		m.Status.NodeRef.Name != "" && m.Status.NodeRef.Name != node.Name
}

// MostAddresses limits the addresses of a Node that count. Kubelets and cloud providers report a few; each address costs a look-up.
const MostAddresses = 64

// NodeNames returns the names and addresses by which a Node is known inside its cluster, each once.
func NodeNames(node *corev1.Node) []string {
	names := sets.New(node.Name)
	for _, address := range NodeAddresses(node) {
		names.Insert(address.Address)
	}
	return sets.List(names.Delete(""))
}

// NodeAddresses returns the addresses of a Node by which it is known inside its cluster.
func NodeAddresses(node *corev1.Node) []corev1.NodeAddress {
	counted := node.Status.Addresses[:min(len(node.Status.Addresses), MostAddresses)]
	return slices.DeleteFunc(slices.Clone(counted), func(a corev1.NodeAddress) bool {
		return a.Type != corev1.NodeHostName && a.Type != corev1.NodeInternalDNS && a.Type != corev1.NodeInternalIP
	})
}

// AllocatableRead returns the resources of a Node that start-up gates read. Only that there are some of a resource counts.
func AllocatableRead(node *corev1.Node) (read corev1.ResourceList) {
	for name, amount := range node.Status.Allocatable {
		if amount.Sign() <= 0 || taint.OnEveryNode(name) {
			continue
		}
		if read == nil {
			read = corev1.ResourceList{}
		}
		read[name] = resource.MustParse("1")
	}
	return read
}

// MachineNames returns the names and addresses by which a Machine is known inside its cluster, each once.
func MachineNames(m *clusterv1.Machine) []string {
	names := sets.New[string]()
	for _, address := range MachineAddresses(m) {
		names.Insert(address.Address)
	}
	return sets.List(names.Delete(""))
}

// MachineAddresses returns the addresses of a Machine by which it is known inside its cluster.
func MachineAddresses(m *clusterv1.Machine) []clusterv1.MachineAddress {
	return slices.DeleteFunc(slices.Clone([]clusterv1.MachineAddress(m.Status.Addresses)), func(a clusterv1.MachineAddress) bool {
		return a.Type != clusterv1.MachineHostName && a.Type != clusterv1.MachineInternalDNS && a.Type != clusterv1.MachineInternalIP
	})
}

func sharesAddress(node *corev1.Node, m *clusterv1.Machine) bool {
	return sets.New(NodeNames(node)...).HasAny(MachineNames(m)...)
}
