// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Why says in one word why a declared entry is not inherited. The empty word means that a rule brings it.
type Why string

// Why a rule does not bring an entry.
const (
	DropNever       Why = "NeverInherited"                 // no rule propagates the key
	DropBookkeeping Why = "Bookkeeping"                    // the key describes the object that carries it
	DropSelected    Why = "UsedBySelector"                 // a selector of the object or its owner uses the label
	DropIdentifies  Why = "SetByClusterAPI"                // Cluster API's controllers set the label, to find an object or its family
	DropOutside     Why = "OutsideSyncedDomains"           // no rule and no regex brings the key to a Node
	DropReserved    Why = "Reserved"                       // no one may declare a taint or a label with this key
	DropInvalid     Why = "Invalid"                        // an API server would refuse it, or there is no room for it
	DropRestricted  Why = "RestrictedUntilPrivilegedWrite" // a kubelet may not write the label on its own Node
	DropUnproven    Why = "MatchedByAddressOnly"           // only a name or an address says that the Node is the Machine
	DropSetThere    Why = "SetThere"                       // somebody else has given the Node the label that a fact would give it
	DropTaints      Why = "TaintsNotSupported"             // the object cannot have typed taints, or Cluster API would refuse them there
	DropPaced       Why = "StaysAnnotation"                // Cluster API would add the typed taint to a Node in use without a limit
	DropOnce        Why = "OnlyAtRegistration"             // a Node gets the taint when it registers, and this one has been initialized
	DropGateOpened  Why = "GateOpened"                     // what the taint waited for was ready, so that it went for good
	DropWaiting     Why = "WaitingForItsTurn"              // the taint evicts Pods, and the Node waits for its turn
	DropPods        Why = "WaitingForPods"                 // the taint evicts Pods, and those that it evicts leave the Node first
	DropElsewhere   Why = "NotPropagatedFromHere"          // the rule brings nothing from where the key is
)

// Waits reports whether a Node gets the entry later, because it evicts Pods.
func (w Why) Waits() bool { return w == DropWaiting || w == DropPods }

// Dropped is an entry that a rule considered and left out.
type Dropped struct {
	Entry
	Why    Why    // empty if only a part of the entry is left out
	Value  string // of a label, if it may be what is wrong
	Detail string // the rest of a sentence about what users must be told; empty if no one misses the entry
}

// longest is how many bytes of a name or a value a message repeats. Users choose them, and they may be of any length.
const longest = 128

// Error implements error.
func (d Dropped) Error() string {
	value, where := "", ""
	switch {
	case d.What == "":
		return d.Detail
	case d.What == annotationKey && d.Why == "":
		return fmt.Sprintf("annotation %s: %s", d.Name, d.Detail)
	case d.Value != "":
		value = fmt.Sprintf("=%q", shorten(d.Value))
	}
	if !d.Own && d.What != taintKey { // taints are in one place only
		where = "template "
	}
	return fmt.Sprintf("%s%s %q%s: %s", where, d.What, shorten(d.Name), value, d.Detail)
}

func shorten(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}

// Drops is all that a rule left out.
type Drops []Dropped

// mostDetails is how many entries are left out with the details. An owner may declare any number of wrong ones.
const mostDetails = 1000

// drop notes an entry that is left out; detail is empty if no one misses it.
func (d *Drops) drop(e Entry, why Why, value, detail string) {
	if e.What != labelKey { // values of annotations may be secret
		value = ""
	}
	if len(*d) >= mostDetails && detail != "" {
		detail = "it is left out, like many other entries"
	}
	*d = append(*d, Dropped{e, why, value, detail})
}

// Problems returns the problems that users must know, sorted; nil if there are none.
func (d Drops) Problems() error {
	told := slices.DeleteFunc(slices.Clone(d), func(dropped Dropped) bool { return dropped.Detail == "" })
	slices.SortStableFunc(told, func(a, b Dropped) int {
		order := []string{labelKey, annotationKey, fieldKey, taintKey, ""}
		names := 0
		if a.What == labelKey || a.What == annotationKey { // lists have an order
			names = cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(last(!a.Own, !b.Own), cmp.Compare(slices.Index(order, a.What), slices.Index(order, b.What)), names)
	})
	errs := make([]error, 0, len(told))
	for _, dropped := range told {
		errs = append(errs, dropped)
	}
	return errors.Join(errs...)
}

// last sorts false before true.
func last(x, y bool) int {
	order := []bool{false, true}
	return cmp.Compare(slices.Index(order, x), slices.Index(order, y))
}

// Problems returns the problems that are joined in an error, one by one.
func Problems(err error) []error {
	if err == nil {
		return nil
	}
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range several.Unwrap() {
		all = append(all, Problems(one)...)
	}
	return all
}

// place is a part of a child that takes what an owner declares: its top, or its Machine template.
type place struct {
	own bool
	has Content
	at  Paths
	out *Drops
}

func (o Object) top(out *Drops) place {
	return place{own: true, has: o.Top, at: o.Layout.Top, out: out}
}

// template returns the child's Machine template. One that the child does not have has no fields.
func (o Object) template(out *Drops) place {
	if o.Template == nil {
		return place{out: out}
	}
	return place{has: *o.Template, at: o.Layout.Template, out: out}
}

func (p place) drop(what, name string, why Why, value, detail string) {
	p.out.drop(Entry{What: what, Name: name, Own: p.own}, why, value, detail)
}

// keys takes labels or annotations. What the child has already with the same value has been accepted.
func (p place) keys(what string, declared map[string]string, why func(key string) Why) map[string]string {
	current := map[string]map[string]string{labelKey: p.has.Labels, annotationKey: p.has.Annotations}[what]
	taken := make(map[string]string, len(declared))
	for key, value := range declared {
		if why := why(key); why != "" {
			p.drop(what, key, why, "", "")
			continue
		}
		if now, had := current[key]; p.at.Metadata != nil && (!had || now != value) {
			if wrong := refused(what, key, value); wrong != "" {
				p.drop(what, key, DropInvalid, value, "an API server would refuse it: "+wrong)
				continue
			}
		}
		taken[key] = value
	}
	return taken
}

// refused says why an API server would refuse a label or an annotation, and with it the whole object, or "".
func refused(what, key, value string) string {
	if what == annotationKey { // its value may be anything
		return strings.Join(validation.IsQualifiedName(strings.ToLower(key)), "; ")
	}
	return strings.Join(slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)), "; ")
}

// usable takes those taints that an object or a Node may have. What validation missed, because it failed open or the object is older, is
// left out.
func (p place) usable(role taint.Role, declared []clusterv1.MachineTaint) []clusterv1.MachineTaint {
	var usable []clusterv1.MachineTaint
	for _, t := range declared {
		switch problem, reserved := taint.Problem(role, t); {
		case reserved:
			p.drop(taintKey, taint.MachineID(t).String(), DropReserved, "", problem)
		case problem != "":
			p.drop(taintKey, taint.MachineID(t).String(), DropInvalid, "", problem)
		default:
			usable = append(usable, taint.Canonical(t))
		}
	}
	return usable
}

// annotated takes the taints that annotations declare. Entries that cannot be read are left out.
func (p place) annotated(role taint.Role, annotations map[string]string) []clusterv1.MachineTaint {
	declared, unreadable := taint.FromAnnotations(annotations)
	for name, problem := range unreadable {
		p.drop(annotationKey, name, "", "", problem.Error())
	}
	return p.usable(role, declared)
}

// conditionType is what Cluster API's CRDs accept as the type of a readiness gate's condition.
var conditionType = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)

const longestConditionType = 316

// fields takes in-place fields: no negative numbers, and valid readiness gates, each type once.
func (p place) fields(declared Fields) Fields {
	for f, seconds := range declared.Seconds {
		if path := p.at.Fields[f]; path != nil && seconds != nil && *seconds < 0 {
			p.drop(fieldKey, Field(f).Name(), DropInvalid, "", fmt.Sprintf("an API server would refuse %d: it must not be negative", *seconds))
			declared.Seconds[f] = nil
		}
	}
	gates := declared.ReadinessGates
	if len(gates) == 0 || p.at.Fields[ReadinessGates] == nil || slices.Equal(gates, p.has.Fields.ReadinessGates) {
		return declared
	}
	seen := sets.New[string]()
	declared.ReadinessGates = nil
	for _, gate := range gates {
		wrong := ""
		switch {
		case seen.Has(gate.ConditionType):
			continue
		case len(gate.ConditionType) > longestConditionType || !conditionType.MatchString(gate.ConditionType):
			wrong = "its condition type is not valid"
		case !slices.Contains([]clusterv1.ConditionPolarity{"", clusterv1.PositivePolarityCondition, clusterv1.NegativePolarityCondition}, gate.Polarity):
			wrong = "its polarity is neither Positive nor Negative"
		}
		if wrong != "" {
			p.drop(fieldKey, gate.ConditionType, DropInvalid, "", "an API server would refuse this readiness gate: "+wrong)
			continue
		}
		seen.Insert(gate.ConditionType)
		declared.ReadinessGates = append(declared.ReadinessGates, gate)
	}
	return declared
}

// ofTemplate returns why a rule leaves out a label of a template or, with the keys that the topology controller finds its objects by,
// of a topology. The controller that owns a selector sets its labels: to change one would make a MachineSet lose or adopt Machines.
func ofTemplate(topology bool, selectors ...metav1.LabelSelector) func(key string) Why {
	selected := sets.New[string]()
	for _, selector := range selectors {
		for key := range selector.MatchLabels {
			selected.Insert(key)
		}
		for _, requirement := range selector.MatchExpressions {
			selected.Insert(requirement.Key)
		}
	}
	return func(key string) Why {
		switch {
		case never(key):
			return DropNever
		case slices.Contains(FamilyLabels, key), topology && slices.Contains(TopologyLabels, key):
			return DropIdentifies
		case selected.Has(key):
			return DropSelected
		}
		return ""
	}
}

// declared returns why a rule leaves out a key that an owner declares for others.
func declared(key string) Why {
	if never(key) {
		return DropNever
	}
	return ""
}

// OfItself says why no rule brings a label or an annotation from the metadata of an owner itself, wherever it goes.
func OfItself(key string) Why {
	switch {
	case never(key):
		return DropNever
	case bookkeeping(key):
		return DropBookkeeping
	}
	return ""
}

// The keys and domains that rules treat specially (docs/design.md §1).
//
//nolint:gochecknoglobals // tables that nothing changes
var (
	// NeverKeys are never inherited: they are bookkeeping of Cluster API's own controllers and of tools, or say that the object which carries
	// them is left alone. That Machines are paused or opted out with their owner is Cluster API's to say: nobody would undo it for us.
	NeverKeys = []string{
		clusterv1.PausedAnnotation, IgnoreLabel,
		"cluster.x-k8s.io/conversion-data",
		clusterv1.RevisionAnnotation, "machinedeployment.clusters.x-k8s.io/revision-history",
		clusterv1.DesiredReplicasAnnotation, clusterv1.MaxReplicasAnnotation,
		clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation, clusterv1.ClusterTopologyDeferUpgradeAnnotation,
		"app.kubernetes.io/managed-by", "helm.sh/chart",
	}
	// NeverDomains are never inherited, with all of their keys. By those of GitOps tools, a tool recognizes the objects that it keeps as they
	// are in Git: it would mistake the child for one of its own.
	NeverDomains  = []string{"kubectl.kubernetes.io", "argocd.argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "meta.helm.sh"}
	GitOpsDomains = NeverDomains[1:4]
	// BookkeepingDomains have keys that describe the object that carries them; of the families, subdomains count too.
	BookkeepingDomains  = []string{"cluster.x-k8s.io", "topology.cluster.x-k8s.io"}
	BookkeepingFamilies = []string{"heirloom.dev"}
	// FamilyLabels are those by which Cluster API's controllers find an object's family. They set them themselves, despite any template.
	FamilyLabels = []string{
		clusterv1.ClusterNameLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel,
		clusterv1.MachineControlPlaneLabel, clusterv1.MachineControlPlaneNameLabel, clusterv1.MachinePoolNameLabel,
	}
	// TopologyLabels are those by which Cluster API's topology controller finds its objects.
	TopologyLabels = []string{
		clusterv1.ClusterTopologyOwnedLabel, clusterv1.ClusterTopologyMachineDeploymentNameLabel,
		clusterv1.ClusterTopologyMachinePoolNameLabel,
	}
)

func never(key string) bool {
	return slices.Contains(NeverKeys, key) || slices.Contains(NeverDomains, domain(key))
}

func bookkeeping(key string) bool {
	inFamily := func(parent string) bool { return within(domain(key), parent) }
	return slices.Contains(BookkeepingDomains, domain(key)) || slices.ContainsFunc(BookkeepingFamilies, inFamily)
}

// domain returns the prefix of a label or annotation key, or the key itself where it has none, as Cluster API does.
func domain(key string) string {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix
}

// within reports whether a domain is parent or a subdomain of it.
func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}
