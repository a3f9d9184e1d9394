// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/compare"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// Reasons that only a comparison with the stored object can find, in addition to the reasons of the rules.
const ownValueWins, overriddenAbove, ownerNotFound, notYet inherit.Why = "OwnValueWins", "OverriddenAbove", "OwnerNotFound", "NotYet"

// The sorts of entries.
const label, annotation, taint, field = string(compare.Label), string(compare.Annotation), string(compare.Taint), string(compare.Field)

// verdict says why an entry is missing, and at which object of the chain it stopped.
type verdict struct {
	why inherit.Why
	at  inherit.Ref
	// of is the reason of a skipped object, the problem of the entry, or the value that takes precedence.
	of string
}

// finder finds the reasons why an object lacks entries, and the declarations for it that did not arrive.
type finder struct {
	*Explainer
	*Explanation
	seen map[inherit.Entry]bool
	left string
}

// addReasons adds the declarations that did not arrive to an explanation, and says why.
func (x *Explainer) addReasons(ctx context.Context, e *Explanation) {
	f, o, all := &finder{x, e, map[inherit.Entry]bool{}, x.left(ctx, e.of)}, e.of, e.of.Sources.All
	unknown := func(v verdict) { // answers for the requested key if the declarations are unknown
		if x.Key != "" {
			f.add(Entry{Entry: compare.Entry{Key: x.Key, Status: compare.Absent}}, v)
		}
	}
	switch {
	case o.Node != nil && !o.Node.Would.Inherits():
		unknown(f.skipped(o.Ref, o.Node.Would.Reason))
		return
	case o.Would.Outcome == inherit.OwnerNotFound:
		unknown(f.skipped(o.Ref, inherit.OwnerIsNotFound))
		return
	}
	for i := range e.Entries {
		f.explainWrong(&e.Entries[i])
	}
	f.lookAtPatched()
	for _, by := range all {
		f.look(ctx, by, by.Content, Entry{})
	}
	for _, by := range all {
		if !by.Unread && !by.Itself {
			f.look(ctx, by, inherit.Content{Labels: by.Object.GetLabels(), Annotations: by.Object.GetAnnotations()}, Entry{ofItself: true})
		}
	}
	f.lookAtReplaced(ctx)
	for i, d := range all[:max(0, len(all)-1)] {
		if d.Unread && d.Kind != "Cluster" && len(e.Entries) == 0 {
			because := cmp.Or(o.Sources.Err, errors.New(string(inherit.OwnerIsNotFound)))
			unknown(verdict{ownerNotFound, all[i+1].Ref, cli.OneLine(because)})
		}
	}
}

// explainWrong says why an entry of the object is not as declared.
func (f *finder) explainWrong(e *Entry) {
	if e.Status == compare.Local && e.Declared != nil {
		f.tell(e, verdict{ownValueWins, f.of.Ref, e.Value})
	} else if e.Status == compare.Missing || e.Status == compare.Differs && e.Declared != nil {
		of := e.Of
		of.Own = !strings.HasPrefix(string(e.Kind), "template ")
		f.tell(e, f.whyNot(f.of, of))
	}
}

// lookAtPatched looks at the declarations of a topology for a control plane's own metadata that a patch of the ClusterClass has removed or
// replaced.
func (f *finder) lookAtPatched() {
	o := f.of
	for _, dropped := range o.Would.Dropped {
		if dropped.Why != inherit.DropPatched {
			continue
		}
		below := inherit.Entry{What: dropped.What, Name: dropped.Name}
		f.seen[below] = o.Would.WhyNot(below) == inherit.DropElsewhere // the template does not inherit it, with or without the patch
		value, _ := o.Declared(dropped.Entry)
		e := Entry{Entry: compare.Entry{
			Kind: compare.Kind(dropped.What), Key: dropped.Name, Value: value, Status: compare.Absent, Of: dropped.Entry, From: o.Sources.Of(dropped.Entry),
		}}
		e.Source = compare.SourceOf(e.From)
		there := slices.ContainsFunc(o.Entries, func(has compare.Entry) bool { return has.Of == e.Of && has.Value == value })
		if !there && (f.Key == "" || e.Is(f.Key)) {
			f.add(e, verdict{inherit.DropPatched, o.Ref, o.PatchOf(e.Of).String()})
		}
	}
}

// lookAtReplaced looks at the declarations of a ClusterClass that the topology replaces.
func (f *finder) lookAtReplaced(ctx context.Context) {
	all := append(slices.Clone(f.of.Sources.All), inherit.Declaration{Ref: f.of.Ref})
	cluster, topology := all[0].Object.(*clusterv1.Cluster)
	if class, ok := all[min(1, len(all)-1)].Object.(*clusterv1.ClusterClass); ok && topology && len(all) > 2 {
		if section := inherit.SectionOf(cluster, class, all[2].Object); section != nil {
			f.seen = map[inherit.Entry]bool{}
			f.look(ctx, all[1], compare.Overridden(*section), Entry{replaced: true})
		}
	}
}

// look adds the declarations of an object that did not arrive. If several objects declare an entry, the uppermost object counts.
func (f *finder) look(ctx context.Context, by inherit.Declaration, content inherit.Content, e Entry) {
	_, external := f.of.Object.(*metav1.PartialObjectMetadata)
	for _, of := range content.Entries() {
		value, _ := content.Value(of)
		e.Entry = compare.Entry{Kind: compare.Kind(of.What), Key: compare.Shown(of), Value: value, Status: compare.Absent, Of: of, From: f.of.Sources.Of(of)}
		applies := of.What == label || of.What == annotation || !external && !e.ofItself && (f.of.Node == nil || of.What == taint)
		if f.seen[of] || !applies || f.Key != "" && !e.Is(f.Key) {
			continue
		}
		if f.seen[of], e.by = true, by; e.replaced {
			e.From = inherit.Source{Ref: by.Ref, Field: fieldIn(by, of)}
		} else if e.ofItself {
			e.From = inherit.Source{Ref: by.Ref, Field: "metadata." + of.What + "s"}
		}
		e.Source = compare.SourceOf(e.From)
		if !f.has(&e) {
			v := f.whyAbsent(ctx, &e)
			f.add(e, v)
		}
	}
}

// add adds an entry that did not arrive, unless nobody would miss its key and the user has not asked for it.
func (f *finder) add(e Entry, v verdict) {
	domain, _, prefixed := strings.Cut(e.Key, "/")
	ofControllers := e.Key == clusterv1.MachineDeploymentUniqueLabel || prefixed && strings.HasSuffix("."+domain, ".cluster.x-k8s.io")
	if f.Key == "" && (v.why == inherit.DropBookkeeping || v.why == inherit.DropIdentifies || v.why == inherit.DropNever && e.ofItself ||
		v.why == inherit.DropOutside && ofControllers) {
		return
	}
	if v.why == notYet {
		e.Status = compare.Missing
	}
	f.tell(&e, v)
	f.Entries = append(f.Entries, e)
}

// has reports whether the object has a declared entry, will have it with the next write, or is not expected to have it.
func (f *finder) has(e *Entry) bool {
	o, itself, annotated := f.of, same(e.by.Ref, f.of.Ref), e.by.TaintAnnotation(e.Of.Name) != ""
	return slices.ContainsFunc(o.Entries, e.isThere) || itself && (!annotated || e.ofItself) ||
		annotated && handsDown(o) || // in a template, a taint may be part of an annotation
		e.ofItself && o.Node != nil && o.Node.WhyNot(e.Of) != inherit.DropElsewhere
}

// whyAbsent says why the object lacks a declared entry.
func (f *finder) whyAbsent(ctx context.Context, e *Entry) verdict {
	o, itself, annotation := f.of, same(e.by.Ref, f.of.Ref), e.by.TaintAnnotation(e.Of.Name)
	shadow := o.Sources.Of(inherit.Entry{What: string(compare.Annotation), Name: annotation}).Ref
	switch {
	case e.ofItself:
		return verdict{why: cmp.Or(inherit.OfItself(e.Of.Name), inherit.DropElsewhere), at: e.by.Ref}
	case e.replaced:
		return verdict{why: overriddenAbove, at: o.Sources.All[0].Ref}
	case annotation != "" && !same(shadow, e.by.Ref):
		return verdict{why: overriddenAbove, at: shadow}
	case o.Node != nil && f.declaredForNode(e):
		return f.whyNot(o, e.Of)
	}
	if v := f.stopped(ctx, e); v.why != "" && !itself {
		return v
	} else if o.Node != nil {
		return f.coming(o)
	}
	of := e.Of
	if of.Own = !handsDown(o); !of.Own {
		e.Kind = "template " + e.Kind
	}
	return f.whyNot(o, of)
}

// declaredForNode reports whether a Node's Machine, once it has inherited, has the declared entry.
func (f *finder) declaredForNode(e *Entry) bool {
	value, _ := f.of.Node.Would.Source.Declares().Value(e.Of)
	return value == e.Value || f.of.Node.WhyNot(e.Of) == inherit.DropUnproven
}

// isThere reports whether an entry of the explained object is this entry, or will be with the next write.
func (e *Entry) isThere(has compare.Entry) bool {
	keepsValue := e.Of.What == taint && e.Value == "" && has.Status == compare.Declared
	return has.Of.What == e.Of.What && has.Of.Name == e.Of.Name &&
		(has.Value == e.Value || e.ofItself && has.Status != compare.Missing || !e.replaced && !e.ofItself && (has.Status.Wrong() || keepsValue))
}

// stopped says at which object above the explained object an entry has stopped.
func (f *finder) stopped(ctx context.Context, e *Entry) verdict {
	all := f.of.Sources.All
	for _, d := range all[slices.IndexFunc(all, func(d inherit.Declaration) bool { return same(d.Ref, e.by.Ref) })+1:] {
		if now, has := d.Value(e.Of); d.Kind == "ClusterClass" || d.Unread || same(d.Ref, f.of.Ref) || has && now == e.Value {
			continue
		}
		h, of := f.Of(ctx, d.Ref, d.Object.GetObjectKind().GroupVersionKind()), e.Of
		if name := e.by.TaintAnnotation(e.Of.Name); name != "" { // templates propagate it as an annotation
			of.What, of.Name = annotation, name
		}
		of.Own = !handsDown(h)
		if h.Err != nil {
			return verdict{ownerNotFound, h.Ref, cli.OneLine(h.Err)}
		}
		return f.whyNot(h, of)
	}
	return verdict{}
}

// handsDown reports whether the kind of an object has a Machine template.
func handsDown(o *compare.Object) bool { return o.Has.Layout.Template.Metadata != nil }

func same(a, b inherit.Ref) bool { return a.String() == b.String() }

func (f *finder) whyNotOnNode(o *compare.Object, e inherit.Entry) verdict {
	if why := o.Node.WhyNot(e); why != "" && (!why.Waits() || o.Skipped == "") {
		return verdict{why, o.Ref, problemOf(o.Problems, e)}
	}
	return f.coming(o)
}

// whyNot says why an object lacks an entry at its top or in its template.
func (f *finder) whyNot(o *compare.Object, e inherit.Entry) verdict {
	if o.Node != nil {
		return f.whyNotOnNode(o, e)
	}
	at := pathsOf(o, e.Own)
	noField := map[string]bool{
		label: at.Metadata == nil, annotation: at.Metadata == nil, taint: at.Taints == nil, field: at.Fields[inherit.FieldOf(e.Name)] == nil,
	}[e.What]
	own := slices.IndexFunc(o.Entries, func(has compare.Entry) bool {
		return has.Of.What == e.What && has.Of.Name == e.Name && (has.Of.Own == e.Own || e.What == taint) && has.Status == compare.Local
	})
	switch why := o.Would.WhyNot(e); {
	case o.Would.Outcome == inherit.OwnerNotFound:
		return f.skipped(o.Ref, inherit.OwnerIsNotFound)
	case why != "":
		return verdict{why, o.Ref, problemOf(o.Problems, e)}
	case noField:
		return verdict{why: "NoSuchField", at: o.Ref}
	case o.Skipped != "":
		return f.skipped(o.Ref, o.Skipped)
	case o.Plan != nil && problemOf(o.Plan.LeftOut(), e) != "":
		return verdict{inherit.DropInvalid, o.Ref, problemOf(o.Plan.LeftOut(), e)}
	case own >= 0:
		return verdict{ownValueWins, o.Ref, o.Entries[own].Value}
	}
	return f.coming(o)
}

// pathsOf returns the paths of an object's entries at its top or in its template.
func pathsOf(o *compare.Object, own bool) (at inherit.Paths) {
	if own {
		at = o.Has.Layout.Top
	} else if o.Has.Template != nil {
		at = o.Has.Layout.Template
	}
	return at
}

// coming returns the verdict about an entry that the next write adds, unless Heirloom skips the object. A Node is skipped because of its
// Machine.
func (f *finder) coming(o *compare.Object) verdict {
	switch {
	case o.Skipped == "":
		return verdict{why: notYet, at: o.Ref}
	case o.Node != nil:
		return f.skipped(o.Node.Would.Source.Ref, o.Skipped)
	}
	return f.skipped(o.Ref, o.Skipped)
}

// problemOf returns the problem of an entry, or "".
func problemOf(problems error, e inherit.Entry) string {
	for _, problem := range inherit.Problems(problems) {
		if about := inherit.EntryOf(problem); about.What == e.What && about.Name == e.Name {
			return " (" + strings.TrimSuffix(cli.OneLine(problem), ".") + ")"
		}
	}
	return ""
}

// skipped returns the verdict about an object that Heirloom skips for now.
func (x *Explainer) skipped(at inherit.Ref, reason inherit.Reason) verdict {
	why := map[inherit.Reason]inherit.Why{
		inherit.IsPaused: "Paused", inherit.ClusterIsPaused: "Paused", inherit.IsDeleted: "Deleting", inherit.OwnerIsNotFound: ownerNotFound,
		inherit.ClusterDoesNotExist: ownerNotFound, inherit.IsNoMachine: "NoMatch", inherit.NotOfManagementCluster: "NoMatch", inherit.NotOfMachine: "NoMatch",
	}[reason]
	switch only, _ := x.Settings.LeavesOut(at.Object.GetNamespace()); {
	case reason == only:
		why = "OtherNamespace"
	case reason.ByLabel():
		why = "IgnoreLabel"
	case strings.Contains(string(reason), inherit.NotFiltered):
		why = "WatchFilter"
	}
	return verdict{cmp.Or(why, inherit.DropElsewhere), at, string(reason)}
}

// texts holds the explanation of each reason and, if there is any, the advice.
var texts = map[inherit.Why][2]string{ //nolint:gochecknoglobals // a table that nothing changes
	inherit.DropOutside:     {"Neither a rule nor a configured regex propagates this {what} to Nodes.{guess}", "{sync}"},
	inherit.DropNever:       {"No rule propagates {key}: a tool or a controller uses it for bookkeeping.", "Choose another key."},
	inherit.DropBookkeeping: {"Keys of this domain describe the object that carries them. Objects inherit them only from a template or a topology; Nodes never inherit them.", "Declare another key."},
	inherit.DropSelected:    {"A selector uses this label, so {at} must not change it.", "Choose another key."},
	inherit.DropIdentifies:  {"Cluster API's controllers set this label on {at} themselves, regardless of declarations.", "Choose another key."},
	inherit.DropReserved:    {"This key must not be declared, so {at} does not get it{of}.", "Choose another key."},
	inherit.DropInvalid:     {"{at} does not get it, because an API server would refuse it or has no room for it{of}.", "Correct it in {from}."},
	inherit.DropElsewhere:   {"No rule propagates it from {from} to this object.", ""},
	"OfItself":              {"{by} has it in its own metadata, which no rule propagates to this object.", "Declare it in spec.template.metadata (of a control plane: spec.machineTemplate.metadata), or in the Cluster's spec.topology if there is one."},
	inherit.DropRestricted:  {"Kubelets must not write this label. Cluster API or the loop adds it with the first write to {at}.", "If it remains missing, check whether Heirloom reaches the workload cluster."},
	inherit.DropUnproven:    {"Only a name or an address links {at} to its Machine. The kubelet chooses both, and the label may be a privilege.", "Set status.nodeRef of the Machine, or the same spec.providerID on Machine and Node."},
	inherit.DropSetThere:    {"Another writer has set this label on {at}, and a fact does not replace it.", "Remove the label from the Node if the fact should set it."},
	inherit.DropPaced:       {"{at} already has a Node, and Cluster API would add a typed NoExecute taint there without a rate limit. So the taint stays an annotation, from which Heirloom taints the Node when its turn comes.", ""},
	inherit.DropOnce:        {"Nodes get OnInitialization taints only once, when they register, and {at} has already registered.", "Declare it as Always if the Node should have it now."},
	inherit.DropWaiting:     {"A NoExecute taint evicts Pods, so existing Nodes get it one after the other: at most {rate} per minute and Cluster (--no-execute-rate){share}, and in few Clusters at a time (--no-execute-clusters). {at} waits for its turn.{left}", "kubectl heirloom status says what the roll-out waits for."},
	inherit.DropTaints:      {"Cluster API's feature gate MachineTaintPropagation is off, so it would refuse typed taints in {at}.", "Declare the taint with the annotation taints.heirloom.dev/always, or turn the gate on."},
	inherit.DropGateOpened:  {"This start-up gate is not closed on {at}: it has opened, or it was declared after the Node had registered.", ""},
	inherit.DropPods:        {"A NoExecute taint evicts Pods, so {at} has it with effect NoSchedule until its Pods have left, as their budgets allow (--no-execute=budgets).{left}", ""},
	inherit.DropPatched:     {"{of} may change the metadata of {at} itself, so Cluster API alone writes this {what} there, as the patch leaves it. The Machine template of {at} is not affected.", "To have it on {at} itself, edit the patch: add single keys there, instead of a whole map."},
	"Annotated":             {"{accepts}, so the taint stays an annotation of {at}, from which Nodes get it.", ""},
	"NoSuchField":           {"{at} has no field for it: the CRD of its kind lacks the field, or its section is not set.", "Upgrade the provider or Cluster API, or declare it where the field exists."},
	ownValueWins:            {"{at} has its own value {value}, which takes precedence.", "Remove it there to inherit."},
	overriddenAbove:         {"{at} has its own declaration, which overrides the declaration of {by}.", "Edit or remove it there."},
	notYet:                  {"{at} should have it, but it has not been written yet, for example because the webhook was unreachable. The loop writes it within {period}.", "If it is still missing then, see the Events of {at} and the log of Heirloom."},
	"Paused":                {"Heirloom skips {at}, because {of}.", "Unpause it, and it inherits again."},
	"IgnoreLabel":           {"Heirloom skips {at}, because {of}.", "Remove the label, and it inherits again."},
	"Deleting":              {"Heirloom skips {at}, because {of}. It stays unchanged until it is gone.", ""},
	"WatchFilter":           {"Heirloom skips {at}, because {of}.", "Add the label, or use --heirloom-namespace for the Heirloom with this filter, if there is one."},
	"OtherNamespace":        {"Heirloom skips {at}, because {of}.", "Use --heirloom-namespace for the Heirloom that watches its namespace, if there is one."},
	ownerNotFound:           {"Inheritance of {at} is unknown, because {of}. Until this changes, it keeps its entries.", ""},
	"NoMatch":               {"{at} inherits nothing, because {of}.", "Compare status.nodeRef, spec.providerID and the addresses of your Machines with the Node."},
}

// tell sets the reason of an entry, its explanation and the advice.
func (f *finder) tell(e *Entry, v verdict) {
	text, accepts := texts[v.why], ""
	switch {
	case v.why == inherit.DropElsewhere && e.ofItself:
		text = texts["OfItself"]
	case v.why != inherit.DropTaints:
	case v.at.Kind == "MachinePool":
		accepts = "Cluster API accepts no typed taints in a MachinePool"
	case e.by.TaintAnnotation(e.Of.Name) != "" && f.Settings.Propagation == inherit.PropagationUnknown:
		accepts = "Cluster API's feature gate MachineTaintPropagation is unknown"
	case e.by.TaintAnnotation(e.Of.Name) != "":
		accepts = "Cluster API's feature gate MachineTaintPropagation is off"
	}
	if accepts != "" {
		text = texts["Annotated"]
	}
	guess, by, share := "", "", ""
	if f.Settings.Config.NoExecuteLimits.Budgets {
		share = ", while no more than a tenth of its set waits for Pods to leave"
	}
	if !f.Settings.Known {
		guess = " The server's settings are unknown: if it already has such a regex, the loop adds the key to the Node."
	}
	if e.by.Object != nil {
		by = e.by.String()
	}
	fill := strings.NewReplacer(
		"{what}", e.Of.What, "{key}", e.Of.Name, "{guess}", guess, "{from}", e.From.String(), "{by}", by, "{of}", v.of, "{value}", fmt.Sprintf("%q", v.of),
		"{accepts}", accepts, "{left}", f.left, "{share}", share, "{rate}", fmt.Sprintf("%g", f.Settings.Config.NoExecuteRate), "{period}", f.Settings.Config.SyncPeriod.String(),
		"{sync}", cli.ToSync(f.Settings.Policy(), e.Of),
	)
	e.at, e.because, e.fix = v.at, fill.Replace(text[0]), fill.Replace(text[1])
	e.Reason, e.Message = string(v.why), strings.TrimSpace(e.because+" "+e.fix)
	e.Message = strings.ReplaceAll(e.Message, "{at}", v.at.String())
}
