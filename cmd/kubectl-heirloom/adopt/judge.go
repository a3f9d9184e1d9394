// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/bootstrap"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Configuration is a bootstrap configuration of a pool, with its declarations for kubelets.
type Configuration struct {
	compare.Source
	ClonedFrom string
	Declares   []bootstrap.Declaration
}

// judge looks at the Nodes of a pool.
type judge struct {
	*Pool
	policy     inherit.Policy
	registered []Configuration
	// undeclared holds the entries of Nodes that nobody declares, and declared the entries that an owner declares.
	undeclared map[inherit.Entry]*Entry
	values     map[inherit.Entry][]string
	declared   map[inherit.Entry]bool
}

// look fills the entries of the pool.
func (j *judge) look() {
	j.undeclared, j.values, j.declared = map[inherit.Entry]*Entry{}, map[inherit.Entry][]string{}, map[inherit.Entry]bool{}
	j.Of.Each(func(o *compare.Object) {
		if o.Err != nil && j.Error == "" {
			j.Error = cli.OneLine(o.Err)
		}
		if o.Node == nil || o.Err != nil {
			return
		}
		j.Nodes++
		for i := range o.Entries {
			if e := &o.Entries[i]; e.Kind == compare.Label || e.Kind == compare.Taint {
				j.node(e)
			}
		}
	})
	for _, of := range slices.SortedFunc(maps.Keys(j.undeclared), order) {
		e := j.undeclared[of]
		j.decide(e)
		j.Entries = append(j.Entries, *e)
	}
	j.others()
}

func order(a, b inherit.Entry) int {
	return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Name, b.Name))
}

// node counts an entry of a Node.
func (j *judge) node(e *compare.Entry) {
	if e.Status != compare.Local || e.Declared != nil {
		j.declared[e.Of] = j.declared[e.Of] || e.Source != nil || e.Declared != nil
		return
	}
	registeredBy := j.registeredBy(e.Of)
	if e.Record || j.ofOthers(e, len(registeredBy) > 0) {
		return
	}
	known := j.undeclared[e.Of]
	if known == nil {
		known = &Entry{Kind: e.Kind, Key: e.Key, Value: e.Value, RegisteredBy: registeredBy, Of: e.Of}
		j.undeclared[e.Of] = known
	}
	known.Nodes++
	if !slices.Contains(j.values[e.Of], e.Value) {
		j.values[e.Of] = append(j.values[e.Of], e.Value)
	}
	for _, manager := range e.Others() {
		if !slices.Contains(known.SetBy, manager) {
			known.SetBy = append(known.SetBy, manager)
		}
	}
}

// ofOthers reports whether controllers, and not people, set the entry. registers says that a bootstrap configuration declares it.
func (j *judge) ofOthers(e *compare.Entry, registers bool) bool {
	by := func(prefix string) bool {
		return slices.ContainsFunc(e.Managers, func(manager string) bool { return strings.HasPrefix(manager, prefix) })
	}
	discovered := e.Kind == compare.Label && by("nfd-") // node-feature-discovery keeps it
	return discovered || ofAgents(e.Of) || ofMachinery(e.Of, by("kubectl") || registers) || j.controlPlane() && ofKubeadm(e.Of)
}

// decide sets the state of an entry that nobody declares.
func (j *judge) decide(e *Entry) {
	slices.Sort(e.SetBy)
	if len(e.SetBy) == 0 && slices.ContainsFunc(e.RegisteredBy, func(r RegisteredBy) bool { return r.Value == e.Value }) {
		e.SetBy = []string{"kubelet"}
	}
	if values := j.values[e.Of]; e.Nodes < j.Nodes || len(values) > 1 {
		if e.State = Partial; len(values) > 1 {
			e.Value = ""
			slices.Sort(values)
			e.Message = fmt.Sprintf("%d values: %s", len(values), cli.Some(values, 3))
		}
		return
	}
	if e.State, e.Message = Adopt, j.whyNot(e); e.Message != "" {
		e.State = NotPropagated
	}
}

// whyNot says why a declaration of the entry would not reach a Node; it is empty if it would, at least once the Cluster names the key.
func (j *judge) whyNot(e *Entry) string {
	if e.Kind == compare.Taint {
		if problem, _ := taint.Problem(taint.Role(j.controlPlane()), taintOf(e)); problem != "" {
			return "Heirloom refuses it: " + problem
		}
		return ""
	}
	m := &clusterv1.Machine{}
	m.Labels = map[string]string{e.Key: e.Value}
	left := j.policy.PlanNode(inherit.ReadNode(&corev1.Node{}, time.Time{}), inherit.SourceOfMachine(m), inherit.Turn{}).LeftOut
	for _, dropped := range left {
		if dropped.Name != e.Key || dropped.What != e.Of.What {
			continue
		}
		switch {
		case dropped.Why == inherit.DropOutside && j.policy.NamedBy(e.Of) != "":
			e.Named = true
			return ""
		case dropped.Why == inherit.DropOutside:
			return cli.ToSync(j.policy, e.Of)
		}
		return "No rule and no flag propagates it."
	}
	return ""
}

// others adds the entries with which kubelets register, and which no Node has or which are already declared.
func (j *judge) others() {
	for _, c := range j.registered {
		for _, d := range c.Declares {
			state, message := DeclaredTwice, "" // the advice says when the old source may go
			if !j.declared[d.Entry] {
				state, message = OnNoNode, "A start-up taint that an agent removes? Declare it with propagation OnInitialization, or the annotation "+
					taint.InitializeAnnotation+", for new Nodes."
				if d.What != string(compare.Taint) {
					message = "Kubelets of future Nodes register with it."
				}
			}
			known := j.undeclared[d.Entry] != nil || j.Nodes == 0 || j.controlPlane() && ofKubeadm(d.Entry) ||
				slices.ContainsFunc(j.Entries, func(e Entry) bool { return e.Of == d.Entry })
			if !known {
				e := Entry{Kind: compare.Kind(d.What), Key: d.Name, Value: d.Value, State: state, RegisteredBy: j.registeredBy(d.Entry), Message: message, Of: d.Entry}
				if state == DeclaredTwice {
					e.Nodes = j.Nodes
				}
				j.Entries = append(j.Entries, e)
			}
		}
	}
}

func (j *judge) registeredBy(of inherit.Entry) (all []RegisteredBy) {
	for _, c := range j.registered {
		for _, d := range c.Declares {
			if d.Entry == of {
				by := RegisteredBy{Source: c.Source, ClonedFrom: c.ClonedFrom, Value: d.Value}
				by.Field = d.Field
				all = append(all, by)
			}
		}
	}
	return all
}

func (p *Pool) controlPlane() bool {
	_, is := p.Of.Object.(*inherit.ControlPlane)
	return is
}

// taintOf returns the taint of an entry.
func taintOf(e *Entry) clusterv1.MachineTaint {
	key, effect, _ := strings.Cut(e.Key, ":")
	return clusterv1.MachineTaint{
		Key: key, Value: e.Value, Effect: corev1.TaintEffect(effect), Propagation: clusterv1.MachineTaintPropagationAlways,
	}
}

// The domains of keys that kubelets, cloud providers, controllers and Cluster API set on every Node. A person may also set the keys of ofPlaces.
//
//nolint:gochecknoglobals // tables that nothing changes
var (
	ofControllers = []string{
		"heirloom.dev", "heirloom.node-restriction.kubernetes.io", "beta.kubernetes.io", "node.kubernetes.io", "node.cloudprovider.kubernetes.io",
		"feature.node.kubernetes.io", "kubernetes.azure.com", "cloud.google.com", "eks.amazonaws.com", "k8s.io",
	}
	ofPlaces = []string{"topology.kubernetes.io", "failure-domain.beta.kubernetes.io"}
	// transient are taints that agents and controllers set and remove: declared, they would stay. A key that ends with / is a prefix.
	transient = []string{
		"ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "startup-taint.cluster-autoscaler.kubernetes.io/",
		"ignore-taint.cluster-autoscaler.kubernetes.io/", "karpenter.sh/", "readiness.k8s.io/", "weave.works/kured-node-reboot",
	}
	// ofOneNode are labels with a value of their own on each Node, or that tools for upgrades and discovery keep.
	ofOneNode = []string{
		"k3s.io/", "rke2.io/", "rke.cattle.io/", "plan.upgrade.cattle.io/", "metal3.io/uuid", "machine.id/", "nvidia.com/", "amd.com/",
		"node.k0sproject.io/", "csi.volume.kubernetes.io/",
	}
)

// ofAgents reports whether agents keep an entry, so that a declaration would fight with them.
func ofAgents(e inherit.Entry) bool {
	name, _, _ := strings.Cut(e.Name, ":")
	keys := ofOneNode
	if e.What == string(compare.Taint) {
		if keys = transient; strings.HasSuffix(name, "/agent-not-ready") {
			return true
		}
	}
	return slices.ContainsFunc(keys, func(key string) bool {
		return name == key || strings.HasSuffix(key, "/") && strings.HasPrefix(name, key)
	})
}

// ofMachinery reports whether an entry is none that people declare. chosen says that a person or a bootstrap configuration has set it.
func ofMachinery(e inherit.Entry, chosen bool) bool {
	name, _, _ := strings.Cut(e.Name, ":")
	domain, _, _ := strings.Cut(name, "/")
	within := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
	switch {
	case name == domain: // a key without a domain
		return false
	case within(clusterv1.ManagedNodeLabelDomain):
		return false
	case within(clusterv1.GroupVersion.Group), slices.ContainsFunc(ofControllers, func(d string) bool { return domain == d }), within("heirloom.dev"):
		return true
	case domain == "kubernetes.io":
		return !chosen || slices.Contains([]string{corev1.LabelHostname, corev1.LabelArchStable, corev1.LabelOSStable}, name)
	}
	return !chosen && (slices.Contains(ofPlaces, domain) || strings.HasPrefix(domain, "topology."))
}

// ofKubeadm reports whether kubeadm sets the entry on each Node of a control plane.
func ofKubeadm(e inherit.Entry) bool {
	name, _, _ := strings.Cut(e.Name, ":")
	return name == "node-role.kubernetes.io/control-plane" || name == "node-role.kubernetes.io/master" ||
		name == corev1.LabelNodeExcludeBalancers
}
