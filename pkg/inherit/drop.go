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

// Why says in one word why a declared entry is not inherited. It is empty if a rule propagates the entry.
type Why string

// Reasons why a rule does not propagate an entry.
const (
	DropNever       Why = "NeverInherited"                 // no rule propagates the key
	DropBookkeeping Why = "Bookkeeping"                    // the key describes the object that carries it
	DropSelected    Why = "UsedBySelector"                 // a selector of the object or its owner uses the label
	DropIdentifies  Why = "SetByClusterAPI"                // Cluster API's controllers set the label, to find an object or its family
	DropOutside     Why = "OutsideSyncedDomains"           // no rule, regex or named key propagates the key to a Node
	DropReserved    Why = "Reserved"                       // nobody may declare a taint or a label with this key
	DropInvalid     Why = "Invalid"                        // an API server would refuse it, or there is no room for it
	DropRestricted  Why = "RestrictedUntilPrivilegedWrite" // a kubelet may not write the label on its own Node
	DropUnproven    Why = "MatchedByAddressOnly"           // the Node matches its Machine only by a name or an address
	DropSetThere    Why = "SetThere"                       // another writer has set the label of a fact on the Node
	DropTaints      Why = "TaintsNotSupported"             // the object cannot have typed taints, or Cluster API would refuse them there
	DropPaced       Why = "StaysAnnotation"                // Cluster API would add the typed taint to a Node in use without a rate limit
	DropOnce        Why = "OnlyAtRegistration"             // a Node gets the taint only when it registers, and this Node has been initialized
	DropGateOpened  Why = "GateOpened"                     // the start-up gate has opened, or the Node registered before the gate was declared
	DropWaiting     Why = "WaitingForItsTurn"              // the taint evicts Pods, and the Node waits for its turn
	DropPods        Why = "WaitingForPods"                 // the taint evicts Pods, and these Pods leave the Node first
	DropPatched     Why = "PatchedByClass"                 // a patch of the ClusterClass may change the control plane's metadata
	DropElsewhere   Why = "NotPropagatedFromHere"          // no rule propagates keys from this part of the owner
)

// Waits reports whether a Node gets the taint later, because it evicts Pods.
func (w Why) Waits() bool { return w == DropWaiting || w == DropPods }

// Dropped is an entry that a rule considered and left out.
type Dropped struct {
	Entry
	Why    Why    // empty if only a part of the entry is left out
	Value  string // of a label, if the value may be the problem
	Detail string // the problem for users, as the rest of a sentence about the entry; empty if nobody misses the entry
}

// longest limits the bytes of a name or a value in a message. Users choose names and values, of any length.
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

func shorten(s string) string { return Shorten(s, longest) }

// Shorten cuts a text from somebody else after this number of bytes.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Drops are the entries that a rule left out.
type Drops []Dropped

// mostDetails limits the dropped entries that have details. An owner may declare any number of invalid entries.
const mostDetails = 1000

// drop records an entry that is left out; detail is empty if nobody misses the entry.
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
		if a.What == labelKey || a.What == annotationKey { // lists keep their order
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

// Problems returns the single problems that are joined in an error.
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

// place is a part of a child that can inherit: its top, or its Machine template.
type place struct {
	own bool
	has Content
	at  Paths
	out *Drops
}

func (o Object) top(out *Drops) place {
	return place{own: true, has: o.Top, at: o.Layout.Top, out: out}
}

// template returns the place of the child's Machine template. It has no content and no paths if the child has no template.
func (o Object) template(out *Drops) place {
	if o.Template == nil {
		return place{out: out}
	}
	return place{has: *o.Template, at: o.Layout.Template, out: out}
}

func (p place) drop(what, name string, why Why, value, detail string) {
	p.out.drop(Entry{What: what, Name: name, Own: p.own}, why, value, detail)
}

// keys returns the labels or annotations that the place inherits. An API server has already accepted entries that the child has with the
// same value.
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

// usable returns the taints that an object or a Node may have. It drops taints that validation missed, because the webhook failed open or
// the object is older.
func (p place) usable(role taint.Role, declared []clusterv1.MachineTaint) []clusterv1.MachineTaint {
	var usable []clusterv1.MachineTaint
	for _, t := range declared {
		switch problem, reserved := taint.Problem(role, t); {
		case reserved:
			p.drop(taintKey, taint.MachineID(t).String(), DropReserved, "", problem)
		case problem != "":
			p.drop(taintKey, taint.MachineID(t).String(), DropInvalid, "", problem)
		default:
			usable = append(usable, t)
		}
	}
	return usable
}

// annotated returns the usable taints that annotations declare. It drops entries that cannot be read.
func (p place) annotated(role taint.Role, annotations map[string]string) []clusterv1.MachineTaint {
	declared, unreadable := taint.FromAnnotations(annotations)
	for name, problem := range unreadable {
		p.drop(annotationKey, name, "", "", problem.Error())
	}
	return p.usable(role, declared)
}

// conditionType matches the condition types that Cluster API's CRDs accept in a readiness gate.
var conditionType = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)

const longestConditionType = 316

// fields returns the in-place fields that the place inherits: no negative numbers, and valid readiness gates, each type once.
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

// ofTemplate returns a function that says why a rule leaves out a label of a template or, if topology is set, of a topology, including the
// labels by which the topology controller finds its objects. The controller that owns a selector sets the labels of the selector: a change
// of them would make a MachineSet lose or adopt Machines.
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

// declared says why a rule leaves out a key that an owner declares for other objects.
func declared(key string) Why {
	if never(key) {
		return DropNever
	}
	return ""
}

// OfItself says why no rule propagates a label or an annotation from an owner's own metadata, to any object.
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
	// NeverKeys are never inherited: they are bookkeeping of Cluster API's own controllers and of tools, or say that an object is left
	// alone. Only Cluster API decides whether Machines are paused with their owner: nobody would remove an inherited pause or label.
	NeverKeys = []string{
		clusterv1.PausedAnnotation, IgnoreLabel,
		"cluster.x-k8s.io/conversion-data",
		clusterv1.RevisionAnnotation, "machinedeployment.clusters.x-k8s.io/revision-history",
		clusterv1.DesiredReplicasAnnotation, clusterv1.MaxReplicasAnnotation,
		clusterv1.ClusterTopologyHoldUpgradeSequenceAnnotation, clusterv1.ClusterTopologyDeferUpgradeAnnotation,
		"app.kubernetes.io/managed-by", "helm.sh/chart",
	}
	// NeverDomains are the domains whose keys are never inherited. A GitOps tool recognizes its objects by the keys of its domain: it would
	// mistake the child for an object that it keeps as it is in Git.
	NeverDomains = []string{"kubectl.kubernetes.io", "argocd.argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "meta.helm.sh"}
	// BookkeepingDomains have keys that describe the object that carries them. BookkeepingFamilies include their subdomains.
	BookkeepingDomains  = []string{"cluster.x-k8s.io", "topology.cluster.x-k8s.io"}
	BookkeepingFamilies = []string{"heirloom.dev"}
	// FamilyLabels are the labels by which Cluster API's controllers find an object's family. The controllers set them, despite any
	// template.
	FamilyLabels = []string{
		clusterv1.ClusterNameLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel,
		clusterv1.MachineControlPlaneLabel, clusterv1.MachineControlPlaneNameLabel, clusterv1.MachinePoolNameLabel,
	}
	// TopologyLabels are the labels by which Cluster API's topology controller finds its objects.
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

// domain returns the prefix of a label or annotation key, or the key itself if it has no prefix, as Cluster API does.
func domain(key string) string {
	prefix, _, _ := strings.Cut(key, "/")
	return prefix
}

// within reports whether a domain is parent or a subdomain of it.
func within(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}
