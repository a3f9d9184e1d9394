// SPDX-License-Identifier: Apache-2.0

// Package owners finds the objects around an object: its owner, its Cluster, the Machine of a Node, and the objects to reconcile after a
// change. It contains the table of kinds, and Evaluate, with which webhooks, loop and plugin decide what happens to an object.
package owners

import (
	"cmp"
	"context"
	"errors"
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

// liveTimeout limits the time of the live reads for one decision, unless the chain has its own LiveTimeout.
const liveTimeout = time.Second

// listTimeout limits the time for which admission and decisions about Nodes wait for the informer of a provider's kind. A kind with a
// broken conversion webhook cannot be listed.
const listTimeout = 250 * time.Millisecond

// Chain reads the objects of an owner chain.
type Chain struct {
	// Cache gets and lists objects from informers. Prepare sets up the informers of known kinds; the first read of a provider's kind starts
	// its informer. Objects from Cache are not copied and must not be changed.
	Cache client.Reader
	// Live gets objects from the API server; nil if the chain reads only the cache.
	Live client.Reader
	// AskMissing makes the chain read an owner that is not cached from Live. Unlike the loop, admission cannot wait for the owner's event.
	AskMissing bool
	// LiveTimeout limits the time of the live reads for one decision, in addition to the context's own deadline; 0 means a second. In
	// admission, it is so long that only the caller's deadline counts.
	LiveTimeout time.Duration
	// AllowLive reports whether the rate limit allows another live read; nil allows all. Beyond the limit, the chain reads the cache.
	AllowLive func() bool
	// Mapper returns the version in which to read a provider's kind. If it is nil, the chain reads the version in the reference.
	Mapper meta.RESTMapper
	// Layout returns the fields in which a kind of control plane can inherit. If it is nil, control planes count as they are.
	Layout func(ctx context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error)
	// Count counts owner look-ups; nil counts none.
	Count func(metrics.LookupResult)

	// fresh makes the chain get every object from Live.
	fresh bool
	// hurried makes reads of a provider's kind wait for listTimeout at most, as AskMissing does.
	hurried bool
	// within is the argument of Within.
	within types.NamespacedName
}

// Within returns a chain for the Nodes of the Cluster. Without a Cluster, a Node has no Machine.
func (c *Chain) Within(cluster types.NamespacedName) *Chain {
	within := *c
	within.within = cluster
	return &within
}

// bounded returns a context for the live reads of one decision.
func (c *Chain) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(c.LiveTimeout, liveTimeout))
}

// cachedOnly returns a chain that does not ask the API server for owners that are not cached, and waits for an informer for listTimeout
// at most. A chain that reads live continues to do so.
func (c *Chain) cachedOnly() *Chain {
	only := *c
	only.AskMissing, only.hurried = false, true
	return &only
}

// Recheck decides from the cache and, if inDoubt is true for the decision, again from live reads: a cache can be stale (docs/design.md
// §5). All live reads of the second decision share one timeout. If the second decision fails, the first counts.
func Recheck[D any](ctx context.Context, c *Chain, inDoubt func(D) bool, decide func(context.Context, *Chain) (D, error)) (D, error) {
	decided, err := decide(ctx, c)
	if err != nil || !inDoubt(decided) {
		return decided, err
	}
	return Again(ctx, c, decided, decide), nil
}

// DecideLive decides for the loop from live reads. The loop can wait: if a read fails, DecideLive returns the error.
func DecideLive[D any](ctx context.Context, c *Chain, decide func(context.Context, *Chain) (D, error)) (D, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	reads, live := &strictReader{Reader: c.Live}, *c
	live.fresh, live.Live = true, reads
	decided, err := decide(ctx, &live)
	return decided, errors.Join(err, reads.failed)
}

// strictReader collects the errors of reads.
type strictReader struct {
	client.Reader
	failed error
}

// Get implements client.Reader.
func (s *strictReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, into, options...)
	s.failed = errors.Join(s.failed, client.IgnoreNotFound(err))
	return err //nolint:wrapcheck // the caller knows the object
}

// Again is the second decision of Recheck. Without Live, it returns the first.
func Again[D any](ctx context.Context, c *Chain, decided D, decide func(context.Context, *Chain) (D, error)) D {
	if c.Live == nil {
		return decided
	}
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	fresh := *c
	fresh.fresh = true
	again, err := decide(bounded, &fresh)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Live decision failed; using cache")
		return decided
	}
	return again
}

// get reads an object, and reports whether it exists with the UID, which may be empty. Names are reused: another UID is another object.
func (c *Chain) get(ctx context.Context, key types.NamespacedName, uid types.UID, into client.Object) (bool, error) {
	if c.fresh {
		found, err := c.getLive(ctx, key, uid, into)
		if err == nil {
			return found, nil
		}
		ctrl.LoggerFrom(ctx).V(1).Info("Live owner lookup failed; using cache", "owner", key, "reason", err.Error())
	}
	provided, is := into.(*unstructured.Unstructured)
	if !is {
		return found(uid, into, c.Cache.Get(ctx, key, into, client.UnsafeDisableDeepCopy))
	}
	if c.AskMissing || c.hurried {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, listTimeout)
		defer cancel()
	}
	given := provided.DeepCopy() // the first read of a kind starts its informer, which keeps the object that it was given
	err := c.Cache.Get(ctx, key, given, client.UnsafeDisableDeepCopy)
	provided.Object = given.Object
	return found(uid, into, err)
}

// getOwner is get for an owner. With AskMissing, it asks the API server for an owner that is not in the cache, or whose informer is not
// synced in time.
func (c *Chain) getOwner(ctx context.Context, namespace string, ref *metav1.OwnerReference, into client.Object) (bool, error) {
	key, where := types.NamespacedName{Namespace: namespace, Name: ref.Name}, metrics.Cached
	if c.fresh {
		where = metrics.Live
	}
	found, err := c.get(ctx, key, ref.UID, into)
	if c.AskMissing && !c.fresh && c.Live != nil && (err == nil && !found || apierrors.IsTimeout(err)) {
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
	if c.AllowLive != nil && !c.AllowLive() {
		return false, errTooManyReads
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
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
	case c.Count == nil:
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
	ref := metav1.GetControllerOfNoCopy(m)
	if ref == nil {
		return MachineOwner{Outcome: inherit.NoOwner}, nil
	}
	switch {
	case groupOf(ref) == inherit.ControlPlaneGroup && !inherit.IsTemplate(ref.Kind):
		object, cp, cpErr := c.ControlPlane(ctx, m.Namespace, ref)
		if err = cpErr; object != nil && ClusterName(object) == m.Spec.ClusterName {
			owner = MachineOwner{Template: inherit.TemplateOfControlPlane(cp), Object: object, controlPlane: cp}
		}
	case ref.Kind == "MachinePool":
		mp, found := &clusterv1.MachinePool{}, false
		if found, err = c.controller(ctx, m, "MachinePool", mp); found && mp.Spec.ClusterName == m.Spec.ClusterName {
			owner = MachineOwner{Template: inherit.TemplateOfMachinePool(mp), Object: mp}
		}
	default:
		ms, found := &clusterv1.MachineSet{}, false
		if found, err = c.controller(ctx, m, "MachineSet", ms); found && ms.Spec.ClusterName == m.Spec.ClusterName {
			owner = MachineOwner{Template: inherit.TemplateOfMachineSet(ms), Object: ms}
		}
	}
	owner.Outcome = inherit.Inherits
	if owner.Template == nil {
		owner.Outcome = inherit.OwnerNotFound
	}
	return owner, err
}

// ControlPlane reads the control plane that a reference names, as it is stored and in the form of the contract. Both are nil if it does
// not exist, or if the API server no longer serves its kind. The UID of the reference may be empty. The first read of a kind starts its
// informer; until the informer is synced, a chain with AskMissing asks the API server. The call is limited in time.
func (c *Chain) ControlPlane(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*unstructured.Unstructured, *inherit.ControlPlane, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	gvk, served, err := c.served(ctx, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
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
	ctx, cancel := c.bounded(context.Background())
	defer cancel()
	return c.served(ctx, gvk)
}

func (c *Chain) served(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionKind, bool, error) {
	var mapping *meta.RESTMapping
	var err error
	switch mapper := c.Mapper.(type) {
	case nil:
		return gvk, true, nil
	case *Kinds:
		mapping, err = mapper.Mapping(ctx, gvk.GroupKind())
	default:
		mapping, err = mapper.RESTMapping(gvk.GroupKind())
	}
	if meta.IsNoMatchError(err) {
		return gvk, false, nil
	}
	if err != nil {
		return gvk, false, fmt.Errorf("finding the served version of %s: %w", gvk.Kind, err)
	}
	return mapping.GroupVersionKind, true, nil
}
