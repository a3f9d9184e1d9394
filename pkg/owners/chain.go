// SPDX-License-Identifier: Apache-2.0

// Package owners finds the objects around an object: its owner, its Cluster, the Machine of a Node, and the objects to reconcile after a
// change. It contains the table of kinds, and Evaluate, with which webhooks, loop and plugin decide what happens to an object.
package owners

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/metrics"
)

const (
	// liveTimeout limits the time of a live decision of the loop.
	liveTimeout = time.Second
	// listTimeout limits the time for which admission and decisions about Nodes wait for the informer of a provider's kind. A kind with a
	// broken conversion webhook cannot be listed.
	listTimeout = 250 * time.Millisecond
	// discoveryTimeout limits the time for which a decision waits until the API server has listed its kinds.
	discoveryTimeout = 500 * time.Millisecond
)

// Freshness says from where a chain reads objects.
type Freshness int

const (
	// FromCache reads the cache, and waits for the informer of a provider's kind until the context ends.
	FromCache Freshness = iota
	// FromCachePromptly reads the cache, and waits for an informer for listTimeout at most.
	FromCachePromptly
	// FromCacheElseLive is FromCachePromptly, and reads an owner that is not cached from the API server. Unlike the loop, admission cannot
	// wait for the owner's event.
	FromCacheElseLive
	// FromLive reads the API server. A read that fails is an error.
	FromLive
)

// Chain reads the objects of an owner chain. The context of a call is the only limit of its time.
type Chain struct {
	// Cache gets and lists objects from informers. Prepare sets up the informers of known kinds; the first read of a provider's kind starts
	// its informer. Objects from Cache are not copied and must not be changed.
	Cache client.Reader
	// Live gets objects from the API server. A chain that reads only the cache needs none.
	Live client.Reader
	// Freshness says which of the two readers answers.
	Freshness Freshness
	// Mapper returns the version in which to read a provider's kind. If it is nil, the chain reads the version in the reference.
	Mapper meta.RESTMapper
	// Layout returns the fields in which a kind of control plane can inherit. If it is nil, control planes count as they are.
	Layout func(ctx context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error)
	// Count counts the look-ups of owners in admission, which never reads FromCache; nil counts none.
	Count func(metrics.LookupResult)

	// within is the argument of Within.
	within types.NamespacedName
}

// Reading returns a chain with this freshness.
func (c *Chain) Reading(from Freshness) *Chain {
	reading := *c
	reading.Freshness = from
	return &reading
}

// cachedOnly returns a chain for look-ups that are not worth a request or a long wait. A chain that reads live continues to do so.
func (c *Chain) cachedOnly() *Chain {
	if c.Freshness == FromLive {
		return c
	}
	return c.Reading(FromCachePromptly)
}

// Within returns a chain for the Nodes of the Cluster. Without a Cluster, a Node has no Machine.
func (c *Chain) Within(cluster types.NamespacedName) *Chain {
	within := *c
	within.within = cluster
	return &within
}

// Recheck decides for admission: from the cache and, if inDoubt is true for the decision, again from live reads, because a cache can be
// stale (docs/design.md §5). Admission has to answer: if a live read fails, the first decision counts.
func Recheck[D any](ctx context.Context, c *Chain, inDoubt func(D) bool, decide func(context.Context, *Chain) (D, error)) (D, error) {
	decided, err := decide(ctx, c)
	if err != nil || c.Live == nil || !inDoubt(decided) {
		return decided, err
	}
	again, err := decideLive(ctx, c, decide)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Live decision failed; using cache", "reason", err.Error()) // any client can cause it
		return decided, nil
	}
	return again, nil
}

// DecideLive decides for the loop from live reads, which share a second. The loop can wait: if a read fails, DecideLive returns the error.
func DecideLive[D any](ctx context.Context, c *Chain, decide func(context.Context, *Chain) (D, error)) (D, error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	return decideLive(ctx, c, decide)
}

// decideLive decides from live reads. A failed read is an error, also if the decision does not need the object.
func decideLive[D any](ctx context.Context, c *Chain, decide func(context.Context, *Chain) (D, error)) (D, error) {
	reads, live := &strictReader{Reader: c.Live}, c.Reading(FromLive)
	live.Live = reads
	decided, err := decide(ctx, live)
	return decided, cmp.Or(err, reads.failed)
}

// strictReader keeps the first error of its reads. Objects of providers' kinds do not count: a decision about a Node can do without them,
// and a kind with a broken conversion webhook must not keep Nodes waiting.
type strictReader struct {
	client.Reader
	failed error
}

// Get implements client.Reader.
func (r *strictReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, into, options...)
	if _, provided := into.(*unstructured.Unstructured); !provided && client.IgnoreNotFound(err) != nil {
		r.failed = cmp.Or(r.failed, fmt.Errorf("reading %T %s from the API server: %w", into, key, err))
	}
	return err //nolint:wrapcheck // the caller knows the object
}

// get reads an object, and reports whether it exists with the UID, which may be empty. Names are reused: another UID is another object.
func (c *Chain) get(ctx context.Context, key types.NamespacedName, uid types.UID, into client.Object) (bool, error) {
	if c.Freshness == FromLive {
		return c.getLive(ctx, key, uid, into)
	}
	provided, is := into.(*unstructured.Unstructured)
	if !is {
		return found(uid, into, c.Cache.Get(ctx, key, into, client.UnsafeDisableDeepCopy))
	}
	if c.Freshness != FromCache {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, listTimeout)
		defer cancel()
	}
	given := provided.DeepCopy() // the first read of a kind starts its informer, which keeps the object that it was given
	err := c.Cache.Get(ctx, key, given, client.UnsafeDisableDeepCopy)
	provided.Object = given.Object
	return found(uid, into, err)
}

// getOwner is get for an owner. FromCacheElseLive, it also reads an owner live if its informer is not synced in time.
func (c *Chain) getOwner(ctx context.Context, namespace string, ref *metav1.OwnerReference, into client.Object) (bool, error) {
	key, where := types.NamespacedName{Namespace: namespace, Name: ref.Name}, metrics.Cached
	if c.Freshness == FromLive {
		where = metrics.Live
	}
	found, err := c.get(ctx, key, ref.UID, into)
	if c.Freshness == FromCacheElseLive && (err == nil && !found || apierrors.IsTimeout(err)) {
		where = metrics.Live
		found, err = c.getLive(ctx, key, ref.UID, into)
	}
	c.count(where, found, err)
	if err != nil {
		return false, fmt.Errorf("getting owner %s %s: %w", ref.Kind, key, err)
	}
	return found, nil
}

func (c *Chain) getLive(ctx context.Context, key types.NamespacedName, uid types.UID, into client.Object) (bool, error) {
	// A client decodes into the given object, which may share its content with an object in the cache.
	gvk := into.GetObjectKind().GroupVersionKind()
	reflect.ValueOf(into).Elem().SetZero()
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return found(uid, into, c.Live.Get(ctx, key, into))
}

func found(uid types.UID, object client.Object, err error) (bool, error) {
	if apierrors.IsNotFound(err) || err == nil && uid != "" && object.GetUID() != uid {
		return false, nil
	}
	return err == nil, err //nolint:wrapcheck // the caller knows the object
}

func (c *Chain) count(where metrics.LookupResult, found bool, err error) {
	switch {
	case c.Count == nil, c.Freshness == FromCache:
	case meta.IsNoMatchError(err), err == nil && !found:
		c.Count(metrics.Missing)
	case err != nil:
		c.Count(metrics.LookupFailed)
	default:
		c.Count(where)
	}
}

// read returns an object of a kind of Cluster API, or nil if it does not exist with the UID, which may be empty.
func read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c *Chain, kind string, key types.NamespacedName, uid types.UID) (P, error) {
	object := P(new(T))
	found, err := c.get(ctx, key, uid, object)
	if err != nil {
		return nil, fmt.Errorf("getting %s %s: %w", kind, key, err)
	}
	if !found {
		return nil, nil
	}
	return object, nil
}

// Cluster returns the named Cluster, or nil if it does not exist.
func (c *Chain) Cluster(ctx context.Context, namespace, name string) (*clusterv1.Cluster, error) {
	if name == "" {
		return nil, nil
	}
	return read[clusterv1.Cluster](ctx, c, "Cluster", types.NamespacedName{Namespace: namespace, Name: name}, "")
}

// ClusterClass returns the ClusterClass of the Cluster's topology, or nil if there is none.
func (c *Chain) ClusterClass(ctx context.Context, cluster *clusterv1.Cluster) (*clusterv1.ClusterClass, error) {
	if cluster == nil {
		return nil, nil
	}
	key, declared := ClassOf(cluster)
	if !declared {
		return nil, nil
	}
	return read[clusterv1.ClusterClass](ctx, c, "ClusterClass", key, "")
}

// NoExecuteOf returns the settings of a Cluster for taints that evict Pods. A ClusterClass that cannot be read may pause, so it does.
func (c *Chain) NoExecuteOf(
	ctx context.Context, cluster *clusterv1.Cluster, n inherit.NoExecute,
) (of inherit.NoExecuteOf, problems []string) {
	class, err := c.ClusterClass(ctx, cluster)
	of, problems = n.Of(cluster, class)
	if err != nil {
		of.Paused, of.By = true, "its ClusterClass, which cannot be read now"
	}
	return of, problems
}

// ClassOf returns the name of the ClusterClass of the Cluster's topology, and whether it has a topology. The class is in the
// Cluster's namespace unless the topology says otherwise.
func ClassOf(cluster *clusterv1.Cluster) (types.NamespacedName, bool) {
	topology := &cluster.Spec.Topology
	if !topology.IsDefined() {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: cmp.Or(topology.ClassRef.Namespace, cluster.Namespace), Name: topology.ClassRef.Name}, true
}

// MachineDeployment returns the MachineDeployment that controls the MachineSet, or nil if there is none.
func (c *Chain) MachineDeployment(ctx context.Context, ms *clusterv1.MachineSet) (*clusterv1.MachineDeployment, error) {
	md := &clusterv1.MachineDeployment{}
	found, err := c.controller(ctx, ms, "MachineDeployment", md)
	if err != nil || !found || md.Spec.ClusterName != ms.Spec.ClusterName {
		return nil, err
	}
	return md, nil
}

// controller reads the controller of child into owner if it has the kind, in the API group of Cluster API, and reports whether it exists.
func (c *Chain) controller(ctx context.Context, child metav1.Object, kind string, owner client.Object) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(child)
	if ref == nil || ref.Kind != kind || groupOf(ref) != clusterv1.GroupVersion.Group {
		return false, nil
	}
	return c.getOwner(ctx, child.GetNamespace(), ref, owner)
}

func groupOf(ref *metav1.OwnerReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}

// MachineOwner is the controller of a Machine, with its declarations for the Machine.
type MachineOwner struct {
	// Outcome is NoOwner if the Machine names no controller, and OwnerNotFound if the controller does not exist or cannot own Machines.
	Outcome inherit.Outcome
	// Template is the owner's Machine template; nil if there is no owner.
	Template *inherit.Template
	// Object is the owner itself: a MachineSet, MachinePool or a provider's control plane (unstructured).
	Object client.Object
	// controlPlane is the owner in the form of the contract, if it is a control plane.
	controlPlane *inherit.ControlPlane
}

// MachineOwner returns the owner of the Machine: its MachineSet (rule 8), control plane (rule 4) or MachinePool (rule 9).
func (c *Chain) MachineOwner(ctx context.Context, m *clusterv1.Machine) (owner MachineOwner, err error) {
	ref, found := metav1.GetControllerOfNoCopy(m), false
	if ref == nil {
		return MachineOwner{Outcome: inherit.NoOwner}, nil
	}
	switch {
	case groupOf(ref) == inherit.ControlPlaneGroup && !inherit.IsTemplate(ref.Kind):
		object, cp, cpErr := c.ControlPlane(ctx, m.Namespace, ref)
		if found, err = object != nil, cpErr; found {
			owner = MachineOwner{Template: inherit.TemplateOfControlPlane(cp), Object: object, controlPlane: cp}
		}
	case ref.Kind == "MachinePool":
		mp := &clusterv1.MachinePool{}
		found, err = c.controller(ctx, m, ref.Kind, mp)
		owner = MachineOwner{Template: inherit.TemplateOfMachinePool(mp), Object: mp}
	default:
		ms := &clusterv1.MachineSet{}
		found, err = c.controller(ctx, m, "MachineSet", ms)
		owner = MachineOwner{Template: inherit.TemplateOfMachineSet(ms), Object: ms}
	}
	if !found || ClusterName(owner.Object) != m.Spec.ClusterName {
		return MachineOwner{Outcome: inherit.OwnerNotFound}, err
	}
	owner.Outcome = inherit.Inherits
	return owner, err
}

// ControlPlane reads the control plane that a reference names, as it is stored and in the form of the contract. Both are nil if it does
// not exist, or if the API server no longer serves its kind. The UID of the reference may be empty. The first read of a kind starts its
// informer; until the informer is synced, a chain that reads FromCacheElseLive asks the API server.
func (c *Chain) ControlPlane(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*unstructured.Unstructured, *inherit.ControlPlane, error) {
	gvk, served, err := c.Served(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if err != nil || !served {
		return nil, nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	found, err := c.getOwner(ctx, namespace, ref, object)
	if meta.IsNoMatchError(err) || err == nil && !found {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	cp := &inherit.ControlPlane{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, cp); err != nil {
		return nil, nil, fmt.Errorf("reading %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	return object, cp, nil
}

// Served returns a provider's kind in the version that the API server prefers, and whether it serves the kind at all.
func (c *Chain) Served(gvk schema.GroupVersionKind) (schema.GroupVersionKind, bool, error) {
	if c.Mapper == nil {
		return gvk, true, nil
	}
	mapping, err := c.Mapper.RESTMapping(gvk.GroupKind())
	if meta.IsNoMatchError(err) {
		return gvk, false, nil
	}
	if err != nil {
		return gvk, false, fmt.Errorf("finding the served version of %s: %w", gvk.Kind, err)
	}
	return mapping.GroupVersionKind, true, nil
}
