// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/pager"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/managedfields"
	"github.com/heirloom-dev/heirloom/pkg/owners"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// errReclaimed says that the removed entries are there again after the write.
var errReclaimed = errors.New("removed entries have come back in the same write: another Heirloom is still running")

// Object cleans up an object of Cluster API or of a provider for good. It reports whether the cleanup changes the object, and the fields
// that it removes. live reads from the API server. If the object changes meanwhile, the error is a conflict.
func Object(
	ctx context.Context, c client.Client, live client.Reader, gvk schema.GroupVersionKind, key client.ObjectKey, mode Mode,
) (changed bool, removed []string, err error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	if err := live.Get(ctx, key, object); err != nil {
		return false, nil, client.IgnoreNotFound(err)
	}
	if !managedfields.Recorded(object.GetManagedFields()) {
		return false, nil, nil
	}
	if object, err = asRecorded(ctx, live, object); err != nil {
		return false, nil, err
	}
	cleaned, removed, err := managedfields.CleanUp(object, mode.KeepValues)
	if err != nil || !mode.writes() {
		return err == nil, removed, err
	}
	// Lists are replaced as a whole, so the patch is valid only for the version that was read.
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, cleaned, patch, client.FieldOwner(managedfields.Manager)); err != nil {
		return false, nil, client.IgnoreNotFound(err)
	}
	if managedfields.Recorded(cleaned.GetManagedFields()) && !mode.DryRun { // a running Heirloom also answers dry runs
		return false, nil, errReclaimed
	}
	return true, removed, nil
}

// asRecorded returns an object in the API version of Heirloom's entry in its managed fields, because another version may have other
// paths. If this version is no longer served, it returns the object as it is.
func asRecorded(ctx context.Context, live client.Reader, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	entries := object.GetManagedFields()
	ours := slices.IndexFunc(entries, managedfields.IsOurs)
	if ours < 0 || entries[ours].APIVersion == object.GetAPIVersion() {
		return object, nil
	}
	recorded := &unstructured.Unstructured{}
	recorded.SetAPIVersion(entries[ours].APIVersion)
	recorded.SetKind(object.GetKind())
	err := live.Get(ctx, client.ObjectKeyFromObject(object), recorded)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return object, nil
	}
	return recorded, err
}

// Node cleans up the entries that Heirloom tracks on a Node for good; see Object.
func Node(ctx context.Context, c client.Client, live client.Reader, name string, mode Mode) (changed bool, removed []string, err error) {
	ctx = ctrl.LoggerInto(ctx, logr.Discard()) // an API server may answer with any number of warnings
	node := &corev1.Node{}
	if err := live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return false, nil, client.IgnoreNotFound(err)
	}
	if !tracked(node) {
		return false, nil, nil
	}
	before := inherit.OfNode(node)
	after := inherit.CleanUp(before, mode.KeepValues)
	lost := missing(before, after)
	// Taints are a single field, which Heirloom owns after the first patch if the patch changes them. The second patch gives the field up.
	for writes := 0; mode.writes() && tracked(node) && writes < 2; writes++ {
		// Taints are an atomic list, so the patch is valid only for the version that was read.
		patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
		node.Labels, node.Annotations, node.Spec.Taints = after.Labels, after.Annotations, after.Taints
		node.ManagedFields = managedfields.Forget(node.ManagedFields)
		if err := c.Patch(ctx, node, patch, client.FieldOwner(managedfields.Manager)); err != nil {
			return false, nil, client.IgnoreNotFound(err)
		}
		if mode.DryRun {
			break
		}
		if !inherit.OfNode(node).Equal(after) {
			return false, nil, errReclaimed
		}
	}
	return true, lost, nil
}

// tracked reports whether Heirloom owns or tracks anything on a Node.
func tracked(node *corev1.Node) bool {
	state := inherit.OfNode(node)
	return managedfields.Recorded(node.ManagedFields) || !inherit.CleanUp(state, true).Equal(state)
}

// missing returns the field paths of the entries that a Node no longer has.
func missing(before, after inherit.NodeState) []string {
	var names []string
	compare := func(field string, before, after map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(before)) {
			if value, has := after[key]; !has || value != before[key] {
				names = append(names, fmt.Sprintf(".metadata.%s.%s", field, key))
			}
		}
	}
	compare("labels", before.Labels, after.Labels)
	compare("annotations", before.Annotations, after.Annotations)
	for _, t := range before.Taints {
		if taint.Find(after.Taints, taint.IDOf(t)) < 0 {
			names = append(names, fmt.Sprintf(".spec.taints[effect=%q,key=%q]", t.Effect, t.Key))
		}
	}
	return names
}

// Kinds returns the kinds whose objects Heirloom may have written, owners before their children. It ignores other API groups that cannot
// be discovered, such as a group of an aggregated API server that is down, and cluster-scoped kinds, which inherit nothing: with
// --namespace, Heirloom may not even list them.
func Kinds(d discovery.DiscoveryInterface, providerGroups []string) ([]schema.GroupVersionKind, error) {
	groups := append([]string{clusterv1.GroupVersionControlPlane.Group, clusterv1.GroupVersion.Group}, providerGroups...)
	lists, err := discovery.ServerPreferredResources(d)
	var failed *discovery.ErrGroupDiscoveryFailed
	ours := func(gv schema.GroupVersion) bool { return slices.Contains(groups, gv.Group) }
	if err != nil && (!errors.As(err, &failed) || slices.ContainsFunc(slices.Collect(maps.Keys(failed.Groups)), ours)) {
		return nil, fmt.Errorf("discovering the API server's kinds: %w", err)
	}
	var order []string
	for _, kind := range owners.Table {
		order = append(order, kind.Name)
	}
	var kinds []schema.GroupVersionKind
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		for _, resource := range list.APIResources {
			inherits := !inherit.IsTemplate(resource.Kind) && (gv.Group != clusterv1.GroupVersion.Group || slices.Contains(order, resource.Kind))
			if err == nil && ours(gv) && resource.Namespaced && inherits {
				kinds = append(kinds, gv.WithKind(resource.Kind))
			}
		}
	}
	slices.SortStableFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(slices.Index(groups, a.Group)-slices.Index(groups, b.Group), slices.Index(order, a.Kind)-slices.Index(order, b.Kind))
	})
	return kinds, nil
}

// scope says which objects belong to this Heirloom, if others share the management cluster: objects in its namespace or with the label of
// its watch filter, external objects of these owners, because a provider need not copy the label, and the Nodes of its Machines.
type scope struct {
	watchFilter string
	owners      sets.Set[types.UID]
	// providerIDs and nodeNames identify its Nodes in the management cluster; nil if all Nodes belong to it.
	providerIDs, nodeNames sets.Set[string]
}

func (s *session) scope(ctx context.Context) (*scope, error) {
	ours := &scope{watchFilter: s.Config.WatchFilter, owners: sets.New[types.UID]()}
	if s.Config.WatchFilter == "" && len(s.Config.Namespaces) == 0 {
		return ours, nil
	}
	ours.providerIDs, ours.nodeNames = sets.New[string](), sets.New[string]()
	err := eachOf(ctx, s.management, &clusterv1.MachineList{}, s.Config.Watched(), func(m *clusterv1.Machine) {
		if !ours.labeled(m) {
			return
		}
		ours.providerIDs.Insert(m.Spec.ProviderID)
		// Names repeat between clusters.
		if s.Config.ManagementClusterKey == (types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}) {
			ours.nodeNames.Insert(m.Status.NodeRef.Name)
		}
	})
	return ours, errors.Join(err, eachOf(ctx, s.management, &clusterv1.MachinePoolList{}, s.Config.Watched(), func(pool *clusterv1.MachinePool) {
		if ours.labeled(pool) {
			ours.providerIDs.Insert(pool.Spec.ProviderIDList...)
		}
	}))
}

func (s *scope) labeled(object metav1.Object) bool {
	return s.watchFilter == "" || object.GetLabels()[clusterv1.WatchLabel] == s.watchFilter
}

// hasObject reports whether an object belongs to this Heirloom, and remembers it as an owner. The owner of an InfraMachine or
// BootstrapConfig decides for it.
func (s *scope) hasObject(object metav1.Object, external bool) bool {
	if refs := object.GetOwnerReferences(); external && len(refs) > 0 && s.watchFilter != "" {
		return slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return s.owners.Has(ref.UID) })
	}
	if !s.labeled(object) {
		return false
	}
	s.owners.Insert(object.GetUID())
	return true
}

// hasNode reports whether a Node of the management cluster belongs to this Heirloom.
func (s *scope) hasNode(node *corev1.Node) bool {
	return s.nodeNames == nil || s.nodeNames.Has(node.Name) || node.Spec.ProviderID != "" && s.providerIDs.Has(node.Spec.ProviderID)
}

// cleanUpManagement cleans up objects and Nodes of the management cluster.
func (s *session) cleanUpManagement(ctx context.Context) error {
	kinds, kindsErr := Kinds(s.Discovery, s.Config.ProviderGroups)
	scope, scopeErr := s.scope(ctx)
	if err := errors.Join(kindsErr, scopeErr); err != nil {
		return err
	}
	for _, gvk := range kinds {
		external := slices.Contains(s.Config.ProviderGroups, gvk.Group)
		list := &metav1.PartialObjectMetadataList{} // enough to skip most objects
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		s.each(ctx, s.management, gvk.GroupKind().String(), list, s.Config.Watched(),
			func(object client.Object) bool {
				return scope.hasObject(object, external) && managedfields.Recorded(object.GetManagedFields())
			},
			func(key client.ObjectKey) (bool, []string, error) {
				return Object(ctx, s.management, s.management, gvk, key, s.Mode)
			})
	}
	s.nodes(ctx, s.management, scope.hasNode)
	return nil
}

// nodes cleans up the Nodes of a cluster.
func (s *session) nodes(ctx context.Context, c cluster, ours func(*corev1.Node) bool) {
	s.each(ctx, c, "Node", &corev1.NodeList{}, []string{""},
		func(object client.Object) bool {
			node, is := object.(*corev1.Node)
			return is && ours(node) && tracked(node)
		},
		func(key client.ObjectKey) (bool, []string, error) { return Node(ctx, c, c, key.Name, s.Mode) })
}

// mostFailures is the maximum number of failed objects of a kind that are named: a workload cluster may have any number of them.
const mostFailures = 20

// each cleans up the wanted objects of a kind, ten at a time, and retries conflicts.
func (s *session) each(
	ctx context.Context, c cluster, kind string, list client.ObjectList, namespaces []string,
	wanted func(client.Object) bool, cleanUp func(client.ObjectKey) (changed bool, removed []string, err error),
) {
	var workers errgroup.Group
	var failures atomic.Int64
	workers.SetLimit(10)
	err := eachOf(ctx, c, list, namespaces, func(object client.Object) {
		if !wanted(object) {
			return
		}
		key := client.ObjectKeyFromObject(object)
		workers.Go(func() error {
			changed, removed, err := again(ctx, func() (bool, []string, error) { return cleanUp(key) })
			switch {
			case err != nil && failures.Add(1) <= mostFailures:
				s.failed(fmt.Errorf("%s%s %s: %w", kind, c.where, key, err))
			case err == nil && changed:
				s.did("cleaned up", kind, key, c.where, removed...)
			}
			return nil
		})
	})
	_ = workers.Wait() // they report for themselves
	if more := failures.Load() - mostFailures; more > 0 {
		s.failed(fmt.Errorf("%s%s: and %d more", kind, c.where, more))
	}
	if err != nil {
		s.failed(fmt.Errorf("%w%s", err, c.where))
	}
}

// again retries a cleanup that failed because the object had changed, or because a webhook that is being removed was still called.
func again(ctx context.Context, cleanUp func() (bool, []string, error)) (changed bool, removed []string, err error) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8}
	gaveUp := wait.ExponentialBackoffWithContext(ctx, backoff, func(context.Context) (bool, error) {
		changed, removed, err = cleanUp()
		return !apierrors.IsConflict(err) && !errors.Is(err, errReclaimed), nil
	})
	return changed, removed, cmp.Or(err, gaveUp)
}

// eachOf calls do for each object of a kind in these namespaces, in pages. list determines the kind, and gets no items. A kind that the API server does not
// serve has no objects.
func eachOf[T runtime.Object](ctx context.Context, c client.Client, list client.ObjectList, namespaces []string, do func(T)) error {
	var err error
	for _, namespace := range namespaces {
		pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			page, _ := list.DeepCopyObject().(client.ObjectList)
			return page, c.List(ctx, page, &client.ListOptions{Namespace: namespace, Limit: options.Limit, Continue: options.Continue})
		})
		pages.PageSize, pages.PageBufferSize = 100, 0 // users decide how large their objects are
		err = errors.Join(err, pages.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			if object, ok := item.(T); ok {
				do(object)
			}
			return nil
		}))
	}
	if err == nil {
		return nil
	}
	gvk, unknown := c.GroupVersionKindFor(list)
	kind := schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}
	if _, served := c.RESTMapper().RESTMapping(kind); unknown == nil && meta.IsNoMatchError(served) {
		return nil
	}
	return fmt.Errorf("listing %s: %w", kind, err)
}
