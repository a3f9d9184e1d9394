// SPDX-License-Identifier: Apache-2.0

package resync

import (
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/controllers/external"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// tracker makes a controller watch kinds of providers, each once in each version. Cluster API's own tracker, of which it has
// one for each version, would hear of nothing more once a provider serves another version in place of the first.
type tracker struct {
	// controller is what watches. It must be set before the first Watch.
	controller controller.Controller
	cache      cache.Cache
	scheme     *runtime.Scheme
	log        logr.Logger
	// versions are Cluster API's trackers, by version.
	versions sync.Map
}

func (d Dependencies) tracker(mgr ctrl.Manager) *tracker {
	return &tracker{cache: d.Providers, scheme: mgr.GetScheme(), log: mgr.GetLogger()}
}

// Watch watches the object's kind in its version, unless it is watched already.
func (t *tracker) Watch(log logr.Logger, object client.Object, wake handler.EventHandler, predicates ...predicate.Predicate) error {
	of, _ := t.versions.LoadOrStore(object.GetObjectKind().GroupVersionKind().Version, &external.ObjectTracker{
		Controller: t.controller, Cache: t.cache, Scheme: t.scheme, PredicateLogger: &t.log,
	})
	return of.(*external.ObjectTracker).Watch(log, object, wake, predicates...) //nolint:forcetypeassert // nothing else is stored
}
