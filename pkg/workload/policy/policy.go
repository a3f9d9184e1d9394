// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
)

const (
	// Name is the name of the policy, of its binding and of the ConfigMap with its parameters.
	Name = "nodes.heirloom.dev"
	// Namespace is the namespace of the parameters in a workload cluster: a user who may write there administers the cluster already.
	Namespace = metav1.NamespaceSystem
	// OwnerAnnotation says which Heirloom made the object, and for which Cluster. An object without it belongs to somebody else.
	OwnerAnnotation = "heirloom.dev/owner"
)

// restricted matches the keys of kubernetes.io, k8s.io and their subdomains.
const restricted = `^([^/]*\.)?(kubernetes|k8s)\.io(/|$)`

//go:embed policy.yaml
var manifest string

// ErrForeign means that another Heirloom made the objects, or made them for another Cluster of the same name.
var ErrForeign = errors.New("the MutatingAdmissionPolicy belongs to another Heirloom")

// labels returns the labels of every object that this package makes.
func labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "heirloom",
		"app.kubernetes.io/component":  "node-admission",
		"app.kubernetes.io/managed-by": "heirloom",
	}
}

// AdmissionPolicy returns the MutatingAdmissionPolicy in this version of its API. It is the same for every workload cluster whose Cluster
// names no keys of its own (inherit.Policy.Of). Even if somebody else has written the parameters, it adds only entries
// that these rules can bring, and no API server refuses the Node because of them.
func AdmissionPolicy(version schema.GroupVersion, rules inherit.Policy) *unstructured.Unstructured {
	guard := clusterv1.NodeUninitializedTaint
	labelsNamed, annotationsNamed := rules.Named()
	constants := strings.NewReplacer(
		"VERSION", version.String(),
		"FORMAT", format,
		"MOST_ADDRESSES", strconv.Itoa(inherit.MostAddresses),
		"MOST_CONTENT", strconv.Itoa(mostContent),
		"MOST_ANNOTATIONS", strconv.Itoa(apivalidation.TotalAnnotationSizeLimitB-len(inherit.UninitializedAnnotation+"added")),
		"LABEL_KEYS", selects(clusterv1.ManagedNodeLabelDomain, rules.AdditionalLabels, named(labelsNamed, rules.SyncAllowed)),
		"ANNOTATION_KEYS", selects(clusterv1.ManagedNodeAnnotationDomain, rules.AdditionalAnnotations, named(annotationsNamed, rules.SyncAllowed),
			inherit.NeverOnNodes...),
		"GUARD_LINE", guardLine,
		"GUARD_KEY", guard.Key,
		"GUARD_EFFECT", string(guard.Effect),
		"GUARD_ANNOTATION", inherit.UninitializedAnnotation,
		"TAINTS_ANNOTATION", clusterv1.TaintsFromMachineAnnotation,
		"RECORD_ANNOTATION", inherit.RecordAnnotation,
		"RESTRICTED", restricted,
		"TRACKING", "'"+strings.Join(inherit.TrackingAnnotations, "', '")+"'",
	)
	content, _ := filled(parsed(), constants).(map[string]any)
	policy := &unstructured.Unstructured{Object: content}
	policy.SetName(Name)
	policy.SetLabels(labels())
	return policy
}

// parsed returns the manifest with the names of constants. Heirloom compares the policy of each workload cluster again and again.
//
//nolint:gochecknoglobals // a part of the program, read once
var parsed = sync.OnceValue(func() (content map[string]any) {
	utilruntime.Must(yaml.UnmarshalStrict([]byte(manifest), &content))
	return content
})

// filled returns a copy of a value with constants in place of their names.
func filled(value any, constants *strings.Replacer) any {
	switch value := value.(type) {
	case string:
		return constants.Replace(value)
	case []any:
		list := make([]any, 0, len(value))
		for _, item := range value {
			list = append(list, filled(item, constants))
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(value))
		for key, item := range value {
			object[key] = filled(item, constants)
		}
		return object
	}
	return value
}

// selects returns the CEL expression for whether the rules bring a key k to a Node (rules 11 and 12): a key of this domain, or a key that
// an operator's regular expressions select or named selects, and that is not about the Machine itself (inherit.OfItself).
func selects(domain string, additional []*regexp.Regexp, named []string, never ...string) string {
	anyOf := func(all ...[]string) string {
		return "(" + strings.ReplaceAll(strings.Join(slices.Concat(all...), "|"), ".", `\.`) + ")"
	}
	var patterns []string
	for _, r := range additional {
		patterns = append(patterns, "(?:"+r.String()+")")
	}
	if len(patterns) > 0 {
		named = append(named, matches(strings.Join(patterns, "|")))
	}
	expression := matches(`^([^/]*\.)?` + anyOf([]string{domain}) + `(/|$)`)
	if len(named) > 0 {
		expression += " || (" + strings.Join(named, " || ") + ") && !" + matches("^"+anyOf(inherit.NeverKeys, never)+"$|^"+
			anyOf(inherit.NeverDomains, inherit.BookkeepingDomains)+`(/|$)|^([^/]*\.)?`+anyOf(inherit.BookkeepingFamilies)+"(/|$)")
	}
	return "(" + expression + ")"
}

func matches(pattern string) string { return "k.matches(" + strconv.Quote(pattern) + ")" }

// named returns the CEL expression for whether a Cluster names a key k that the operator allows; nil if the Cluster names none. If either
// names any key, it leaves all keys of Kubernetes to the loop.
func named(keys, allowed []string) []string {
	if len(keys) == 0 || len(allowed) == 0 {
		return nil
	}
	covered := func(list []string) string {
		var patterns []string
		for _, key := range list {
			prefix, isPrefix := strings.CutSuffix(key, "*")
			patterns = append(patterns, regexp.QuoteMeta(prefix)+map[bool]string{false: "$"}[isPrefix])
		}
		return matches("^(" + strings.Join(patterns, "|") + ")")
	}
	expression := covered(keys) + " && " + covered(allowed)
	if slices.Contains(slices.Concat(keys, allowed), inherit.SyncAnyKey) {
		expression += " && !" + matches(restricted)
	}
	return []string{expression}
}

// Binding returns the binding of the policy to its parameters. Without parameters, the policy does nothing.
func Binding(version schema.GroupVersion) *unstructured.Unstructured {
	binding := object(version, "MutatingAdmissionPolicyBinding", "")
	binding.Object["spec"] = map[string]any{
		"policyName": Name,
		"paramRef": map[string]any{
			"namespace": Namespace, "name": Name, "parameterNotFoundAction": string(admissionregistrationv1.AllowAction),
		},
	}
	return binding
}

// Parameters returns the ConfigMap with the parameters of a Cluster. machines are all Machines of the Cluster, including skipped Machines.
// With a NoRoomError, the parameters are valid nevertheless.
func Parameters(ctx context.Context, machines []inherit.Machine, rules inherit.Policy) (*unstructured.Unstructured, error) {
	data, err := encode(ctx, machines, rules)
	parameters := object(corev1.SchemeGroupVersion, "ConfigMap", Namespace)
	parameters.Object["data"] = data
	return parameters, err
}

func object(version schema.GroupVersion, kind, namespace string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{}}
	made.SetGroupVersionKind(version.WithKind(kind))
	made.SetNamespace(namespace)
	made.SetName(Name)
	made.SetLabels(labels())
	return made
}

// Ensure makes the policy of a workload cluster give Nodes the declarations of these Machines, which are the machines of Parameters. It
// writes only objects that differ. The policy comes first: without the right to write it, nothing else is written, and without a binding the
// policy does nothing. If the API server does not serve MutatingAdmissionPolicies, meta.IsNoMatchError holds for the error. With a
// NoRoomError, everything has been written nevertheless. registered reports, even with an error, whether the binding is new.
//
// The client must read from the API server itself, like the client of Remove: a cache would hold the objects of others.
func Ensure(
	ctx context.Context, workload client.Client, owner string, machines []inherit.Machine, rules inherit.Policy,
) (registered bool, err error) {
	version, err := served(workload)
	if err != nil {
		return false, err
	}
	parameters, noRoom := Parameters(ctx, machines, rules)
	if ctx.Err() != nil {
		return false, noRoom
	}
	if _, err := apply(ctx, workload, AdmissionPolicy(version, rules), owner); err != nil {
		return false, err
	}
	if registered, err = apply(ctx, workload, Binding(version), owner); err != nil {
		return false, err
	}
	_, err = apply(ctx, workload, parameters, owner)
	return registered, cmp.Or(err, noRoom)
}

// served returns the version in which the API server serves MutatingAdmissionPolicies. If it does not, meta.IsNoMatchError holds for the
// error. served asks the client's RESTMapper: this costs nothing once the kinds are known.
func served(workload client.Client) (schema.GroupVersion, error) {
	kind := schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: "MutatingAdmissionPolicy"}
	var err error
	for _, version := range []string{"v1", "v1beta1"} {
		if _, err = workload.RESTMapper().RESTMapping(kind, version); err == nil {
			return schema.GroupVersion{Group: kind.Group, Version: version}, nil
		}
		if !meta.IsNoMatchError(err) {
			break
		}
	}
	return schema.GroupVersion{}, fmt.Errorf("looking for MutatingAdmissionPolicies in the workload cluster: %w", err)
}

// apply makes the object in the workload cluster the desired object, and reports whether it is new. Fields of others, such as further match
// conditions, stay.
func apply(ctx context.Context, workload client.Client, desired *unstructured.Unstructured, owner string) (created bool, err error) {
	desired.SetAnnotations(map[string]string{OwnerAnnotation: owner})
	existing := object(desired.GroupVersionKind().GroupVersion(), desired.GetKind(), desired.GetNamespace())
	err = workload.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting %s %s: %w", desired.GetKind(), Name, err)
	}
	if err == nil && existing.GetAnnotations()[OwnerAnnotation] == owner && reflect.DeepEqual(existing.Object["spec"], desired.Object["spec"]) &&
		reflect.DeepEqual(existing.Object["data"], desired.Object["data"]) {
		return false, nil
	}
	created = err != nil
	err = workload.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(managedfields.Manager), client.ForceOwnership)
	if err != nil {
		return false, fmt.Errorf("applying %s %s: %w", desired.GetKind(), Name, err)
	}
	return created, nil
}

// Remove deletes the objects that Ensure has made for this owner, and reports, even with an error, whether it deleted the binding. It is
// not an error if the objects do not exist, or never could. It keeps the objects of another owner, and returns ErrForeign. An object is
// deleted before the object that it refers to.
func Remove(ctx context.Context, workload client.Client, owner string) (removed bool, err error) {
	made := []*unstructured.Unstructured{object(corev1.SchemeGroupVersion, "ConfigMap", Namespace)}
	switch version, err := served(workload); {
	case err == nil:
		made = append([]*unstructured.Unstructured{Binding(version), object(version, "MutatingAdmissionPolicy", "")}, made...)
	case !meta.IsNoMatchError(err): // the parameters exist even if the policy is no longer served
		return false, err
	}
	var foreign error
	for _, object := range made {
		err := workload.Get(ctx, client.ObjectKeyFromObject(object), object)
		switch made := object.GetAnnotations()[OwnerAnnotation]; {
		case err != nil || made == "":
		case made != owner:
			foreign = ErrForeign
		default:
			err = workload.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())})
			removed = removed || err == nil && object.GetKind() == "MutatingAdmissionPolicyBinding"
		}
		if client.IgnoreNotFound(err) != nil {
			return removed, fmt.Errorf("deleting %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return removed, foreign
}
