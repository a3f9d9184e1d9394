// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/diff"
)

// advise says what to do after the patches, and what to know before.
func (a *Adoption) advise() {
	say := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(a.Advice, text) {
			a.Advice = append(a.Advice, text)
		}
	}
	var single, writers []string
	for _, p := range a.Pools {
		for i := range p.Entries {
			e := &p.Entries[i]
			p.adviseOldSource(e, say)
			e.adviseKey(say)
			if e.State == Adopt {
				single = append(single, slices.Repeat([]string{p.Name}, max(0, 2-p.Nodes))...)
				writers = append(writers, e.writers()...)
			}
		}
	}
	slices.Sort(writers)
	if len(writers) > 0 {
		say("These writers are no longer needed: %s.", strings.Join(slices.Compact(writers), ", "))
	}
	if len(single) > 0 {
		say("Pools with one Node: %s. Declare only entries that are meant for every Node to come.", strings.Join(slices.Compact(single), ", "))
	}
	if a.Undeclared() {
		say("If you remove a declaration later, Heirloom removes the entry from the Nodes, even if a kubelet has set it.")
	}
}

// adviseKey warns of keys with special rules.
func (e *Entry) adviseKey(say func(string, ...any)) {
	domain, _, _ := strings.Cut(e.Key, "/")
	switch {
	case e.Kind != compare.Label || e.State != Adopt && e.State != NotPropagated:
	case domain == clusterv1.NodeRoleLabelPrefix:
		say("A kubelet may not set label %s itself: new Nodes get it with the first write after they register.", e.Key)
	case slices.Contains(ofPlaces, domain) || strings.HasPrefix(domain, "topology."):
		say("PersistentVolumes may select label %s, and cannot change their choice: keep the value.", e.Key)
	}
}

// writers names the field managers other than kubelets that set a label. The API server does not know who set a taint: it tracks all taints
// of a Node as one field.
func (e *Entry) writers() (all []string) {
	for _, writer := range e.SetBy {
		if writer != "kubelet" && e.Kind == compare.Label {
			all = append(all, writer+" (label "+e.Key+")")
		}
	}
	return all
}

// adviseOldSource says when the old source of an entry may go.
func (p *Pool) adviseOldSource(e *Entry, say func(string, ...any)) {
	if e.State != Adopt && e.State != DeclaredTwice {
		return
	}
	for _, by := range e.RegisteredBy {
		source := fmt.Sprintf("%s %s/%s", by.Kind, by.Namespace, by.Name)
		_, topology := p.Of.Object.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]
		switch {
		case topology && by.ClonedFrom != "":
			say("Remove the old source from %s (its copy is %s), or from the patch of the ClusterClass that sets it, together with a new "+
				"spec.topology.version: the removal replaces Machines.", by.ClonedFrom, source)
		case topology:
			say("Remove the old source from the template of %s together with a new spec.topology.version: the removal replaces Machines.", source)
		case p.controlPlane(), p.Kind == "MachinePool":
			say("Remove the old source from %s with the next upgrade: the removal replaces Machines.", source)
		default:
			say("Remove the old source from %s in place, at any time: Cluster API compares only its name, and replaces no Machine.", source)
		}
		if p.controlPlane() && strings.HasSuffix(by.Field, "nodeRegistration.taints") {
			say("Keep the list nodeRegistration.taints of %s, even if it is empty ([]): without the list, kubeadm adds its default taint.", source)
		}
	}
}

// Compare adds the answer of diff about the patches.
func (a *Adoption) Compare(tree *compare.Tree, result *diff.Result) {
	pending := map[string]bool{}
	id := func(node string, e compare.Entry) string { return fmt.Sprintln(node, e.Kind, e.Key) }
	tree.Each(func(o *compare.Object) {
		if o.Node != nil {
			for _, e := range o.Wrong() {
				pending[id(o.Node.Name, e)] = true
			}
		}
	})
	a.Difference = result
	for _, o := range result.Objects {
		for _, e := range o.Changes {
			if o.Kind == "Node" && !pending[id(o.Name, e)] {
				a.NodeChanges = append(a.NodeChanges, "Node/"+o.Name+" "+diff.Changed(e))
			}
		}
	}
}
