// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// message says why an entry is missing and what to do about it.
func (q question) message(d declared, v verdict) string {
	switch v.why {
	case inherit.DropOutside:
		return q.outside(d)
	case rules.Paused, rules.OptedOut, rules.Deleting, rules.WatchFilter, otherNamespace:
		return skipped(v)
	case rules.OwnerNotFound, rules.NoMatch:
		return unknownOwner(v)
	case inherit.DropTaints, inherit.DropPaced, inherit.DropReserved, inherit.DropInvalid, inherit.DropWaiting, inherit.DropOnce:
		return q.taintMessage(d, v)
	case inherit.DropRestricted, inherit.DropUnproven:
		return nodeMessage(v)
	case notYet:
		return fmt.Sprintf("Nothing keeps %s from inheriting it. It has not been written yet, for example because the webhook was not reachable. "+
			"The loop writes it within %s: if it is still missing then, look at the Events of %s and at the log of Heirloom.",
			name(v.at), q.settings.Config.SyncPeriod, name(v.at))
	case ownValueWins:
		return fmt.Sprintf("%s has its own value %q, which wins. To inherit, remove it there.", name(v.at), v.of)
	}
	return keyMessage(d, v)
}

// name is what people call an object: Nodes have no namespace.
func name(of inherit.Ref) string {
	return strings.Replace(of.String(), " /", " ", 1)
}

// keyMessage is about what the rules leave out.
func keyMessage(d declared, v verdict) string {
	switch v.why {
	case inherit.DropNever:
		return fmt.Sprintf("No rule hands down %s, wherever it is declared: it is bookkeeping of a tool or a controller. Choose another key.", d.Name)
	case inherit.DropBookkeeping:
		return fmt.Sprintf("Keys of this domain tell about the object that carries them, so %s does not inherit it from here. "+
			"They are inherited only from a template or a topology, and never by a Node.", name(v.at))
	case inherit.DropSelected:
		return fmt.Sprintf("A selector uses this label, so %s must not change it. Choose another key.", name(v.at))
	case inherit.DropIdentifies:
		return fmt.Sprintf("Cluster API's controllers set this label on %s themselves, whatever an owner declares. Choose another key.", name(v.at))
	case noSuchField:
		return fmt.Sprintf("%s has no field for it: the CRD of its kind lacks the field, or its section is not set. "+
			"Upgrade the provider or Cluster API, or declare it where the field exists.", name(v.at))
	case overriddenAbove:
		return fmt.Sprintf("%s declares something else, which counts instead of what %s declares. Edit it there, or remove it there.", name(v.at), name(d.by.Ref))
	}
	return elsewhere(d)
}

func elsewhere(d declared) string {
	if !d.metadata {
		return fmt.Sprintf("No rule hands it down from %s to this object.", describe(d.source))
	}
	return fmt.Sprintf("%s has it in its own metadata, which no rule hands down to this object. Declare it %s.", name(d.by.Ref), whereToDeclare(d.by.Kind))
}

func whereToDeclare(kind string) string {
	switch kind {
	case "Cluster":
		return "in spec.topology (controlPlane.metadata, or metadata of an item of workers)"
	case "ClusterClass":
		return "in metadata of spec.controlPlane, or of an item of spec.workers"
	case "MachineDeployment", "MachineSet", "MachinePool":
		return "in spec.template.metadata, or in the Cluster's topology if there is one"
	}
	return "in spec.machineTemplate.metadata, or in the Cluster's topology if there is one"
}

// skipped says why an object inherits nothing for now, and how that ends.
func skipped(v verdict) string {
	then := map[inherit.Why]string{
		rules.Paused:      "It inherits when it is no longer paused.",
		rules.OptedOut:    "Remove the label, and it inherits again.",
		rules.Deleting:    "It stays as it is until it is gone.",
		rules.WatchFilter: "Add the label, or ask the instance of Heirloom that is responsible for it.",
		otherNamespace:    "Choose the instance of Heirloom that watches its namespace with --heirloom-namespace, if there is one.",
	}
	return fmt.Sprintf("Heirloom leaves %s alone, because %s. %s", name(v.at), v.of, then[v.why])
}

func unknownOwner(v verdict) string {
	if v.why == rules.NoMatch {
		return fmt.Sprintf("%s inherits nothing, because %s. Compare status.nodeRef, spec.providerID and the addresses of your Machines with the Node.", name(v.at), v.of)
	}
	because := v.of
	if because == "" {
		because = string(inherit.OwnerIsNotFound)
	}
	return fmt.Sprintf("What %s should have is not known, because %s. It keeps what it has until then.", name(v.at), because)
}

// outside names the flag and the chart's value that would bring a key to Nodes.
func (q question) outside(d declared) string {
	exact := "^" + regexp.QuoteMeta(d.Name) + "$"
	flag, value := "--additional-sync-machine-labels", "additionalSyncMachineLabels"
	if d.What == string(Annotation) {
		flag, value = "--additional-sync-machine-annotations", "additionalSyncMachineAnnotations"
	}
	message := fmt.Sprintf("No rule brings this %s to Nodes, and no regex of the server either. Start the server with %s='%s', or add %q to the chart's value %s.",
		d.What, flag, exact, exact, value)
	if !q.settings.Known {
		return message + " The settings of the server are not known here: if it has such a regex already, the Node gets the key from the loop."
	}
	return message
}

func (q question) taintMessage(d declared, v verdict) string {
	switch v.why {
	case inherit.DropTaints:
		return q.notTyped(d, v)
	case inherit.DropPaced:
		return fmt.Sprintf("%s has a Node already, and Cluster API would add a typed NoExecute taint there at once, without a limit. "+
			"So the taint stays an annotation, from which Heirloom brings it to the Node at its pace. There is nothing to do.", name(v.at))
	case inherit.DropOnce:
		return fmt.Sprintf("The taint is one of initialization: Nodes get it once, when they register, and %s has registered. "+
			"Declare it as Always if the Node should have it now.", name(v.at))
	case inherit.DropWaiting:
		return fmt.Sprintf("A taint with effect NoExecute evicts Pods, so Nodes in use get it one after the other: "+
			"at most %g a minute in a Cluster (--no-execute-rate). %s waits for its turn. There is nothing to do.", q.settings.Config.NoExecuteRate, name(v.at))
	case inherit.DropReserved:
		return fmt.Sprintf("No one may declare this key, so it is left out at %s%s. Choose another key.", name(v.at), because(v.of))
	}
	return fmt.Sprintf("It is left out at %s, because an API server would refuse it or has no room for it%s. Correct it where it is declared.", name(v.at), because(v.of))
}

func because(problem string) string {
	if problem == "" {
		return ""
	}
	return " (" + strings.TrimSuffix(problem, ".") + ")"
}

// notTyped says why a taint is not typed at an object, and how it reaches Nodes all the same.
func (q question) notTyped(d declared, v verdict) string {
	annotated := d.by.Object != nil && d.by.TaintAnnotation(d.Name) != ""
	switch {
	case v.at.Kind == "MachinePool":
		return fmt.Sprintf("Cluster API accepts no typed taints in a MachinePool. So %s has the taint as an annotation, from which its Nodes get it. There is nothing to do.", name(v.at))
	case annotated && q.settings.Propagation == inherit.PropagationUnknown:
		return fmt.Sprintf("It is not known whether Cluster API accepts typed taints, so the taint stays an annotation of %s, from which its Node gets it. There is nothing to do.", name(v.at))
	case annotated:
		return fmt.Sprintf("Cluster API's feature gate MachineTaintPropagation is off, so the taint stays an annotation of %s, from which its Node gets it. There is nothing to do.", name(v.at))
	}
	return fmt.Sprintf("Cluster API's feature gate MachineTaintPropagation is off, and it would refuse typed taints in %s. "+
		"Declare the taint by the annotation taints.heirloom.dev/always, or switch the gate on.", name(v.at))
}

func nodeMessage(v verdict) string {
	if v.why == inherit.DropUnproven {
		return fmt.Sprintf("%s is matched with its Machine only by a name or an address, which a kubelet chooses. The label may be a privilege, "+
			"so it comes when the Machine has a status.nodeRef, or both have the same spec.providerID.", name(v.at))
	}
	return fmt.Sprintf("Kubelets may not write this label, and so far no one else has written %s. It comes with the first write by Cluster API or the loop; "+
		"if it stays away, check whether Heirloom reaches the workload cluster.", name(v.at))
}
