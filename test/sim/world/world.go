// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/test/sim/apiserver"
)

const (
	// The users of API servers. The name of a replica ends with its number, the name of a kubelet with the name of its Node.
	heirloomUser  = "heirloom"
	clusterAPI    = "cluster-api"
	operatorUser  = "operator"
	foreignUser   = "foreign"
	neighbourUser = "neighbour"
	providerUser  = "provider"
	// controlPlaneUser is the provider of control planes.
	controlPlaneUser = "control-plane-provider"
	kubeletPrefix    = "system:node:"
	// workloadURL is the URL under which workload clusters reach the webhooks.
	workloadURL = "https://heirloom.example.com"
)

var errUnreachable = errors.New("connection refused")

// cluster is an API server of the world.
type cluster struct {
	key    client.ObjectKey // of its Cluster; empty for the management cluster
	server *apiserver.Server
	mapper meta.RESTMapper
	admin  client.Client
}

// World is a management cluster, workload clusters, and all programs that run there.
type World struct {
	ctx       context.Context
	cancel    context.CancelFunc
	scheduler *scheduler
	options   Options
	flags     []string

	management *cluster
	clusters   []*cluster
	replicas   []*process
	capi       *process
	actions    sync.WaitGroup // unfinished actions
	provider   sync.WaitGroup

	history *history
	// booted has the machines whose kubelets have registered, by the UID of the FakeMachine.
	booted map[types.UID]bool
	// pods counts the Pods that were created.
	pods int

	mu sync.Mutex
	// wrong has the end of each fault, by its name, and late the delay of the webhooks while they are late; guarded by mu.
	wrong map[string]time.Time
	late  time.Duration
}

// The names of the faults, except API servers that are away or hang, and watches that are stalled: their names have functions.
const (
	webhooksAreAway = "webhooks are away"
	webhooksAreLate = "webhooks are late"
	requestsFail    = "requests fail"
	isStalled       = "is stalled" // ends the name of the fault of a watch that sends nothing
	isFrozen        = " is frozen"
)

func awayOf(server string) string  { return server + " is away" }
func hangsOf(server string) string { return server + " hangs" }
func freezeOf(user string) string  { return user + isFrozen }
func stallOf(user, resource string) string {
	return "the watch of " + user + " for " + resource + " " + isStalled
}

// serve makes an API server.
func (w *World) serve(name string, key client.ObjectKey, crds []*apiextensionsv1.CustomResourceDefinition) (*cluster, error) {
	of := &cluster{key: key}
	var err error
	of.server, err = apiserver.New(apiserver.Options{
		Name: name, CRDs: crds, Turn: w.scheduler.turns(name), Unguarded: w.options.Unguarded,
		Webhook: func(ctx context.Context, hook admissionregistrationv1.MutatingWebhook, body []byte) ([]byte, error) {
			return w.callWebhook(ctx, hook, body)
		},
		Budget: func() bool { return w.left(budgetOf(name)) > 0 },
		Stored: func(write apiserver.Write) { w.history.stored(name, write) },
	})
	if err != nil {
		return nil, err
	}
	of.mapper = of.server.Mapper()
	of.admin, err = of.as(operatorUser)
	return of, err
}

// cluster returns a workload cluster.
func (w *World) cluster(name string) *cluster {
	for _, of := range w.clusters {
		if of.key.Name == name {
			return of
		}
	}
	panic("there is no Cluster " + name)
}

// program returns a process of the management cluster.
func (w *World) program(name string) *process {
	for _, p := range append(w.replicas, w.capi) {
		if p.name == name {
			return p
		}
	}
	panic("there is no program " + name)
}

// as returns a user's client without a cache.
func (c *cluster) as(user string, groups ...string) (client.Client, error) {
	return client.New(c.server.Client(user, groups...), client.Options{Scheme: clusterAPIScheme, Mapper: c.mapper})
}

// goesWrong starts a fault that lasts for a while.
func (w *World) goesWrong(what string, lasts time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if until := time.Now().Add(lasts); until.After(w.wrong[what]) {
		w.wrong[what] = until
	}
}

// left returns the remaining time of a fault; negative after its end.
func (w *World) left(what string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.wrong[what])
}

// heals waits until all faults have ended.
func (w *World) heals(ctx context.Context) {
	w.actions.Wait()
	w.mu.Lock()
	until := time.Now()
	for _, end := range w.wrong {
		if end.After(until) {
			until = end
		}
	}
	w.mu.Unlock()
	sleep(ctx, time.Until(until))
}

// The maximum duration of a request: without faults, and with faults.
const calm, slow = time.Second, 10 * time.Second

// takes returns how long ago a write that is stored now may have been decided: about as long as a request takes, or longer while a fault
// delays its writer. cached are the resources whose caches alone decided, as for an object that a webhook leaves unchanged. While requests
// fail or webhooks are late, admission decides from its caches if a live read fails.
func (w *World) takes(cached ...string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	inTime := max(time.Until(w.wrong[requestsFail]), time.Until(w.wrong[webhooksAreLate])) < -slow
	for what, until := range w.wrong {
		stalls := strings.HasSuffix(what, isStalled) && (!inTime || slices.ContainsFunc(append(cached, "owners"), func(of string) bool {
			return len(cached) > 0 && strings.Contains(what, "for "+of+" ")
		}))
		if time.Until(until) > -slow && (stalls || strings.HasSuffix(what, isFrozen)) {
			return syncPeriod
		}
	}
	if inTime {
		return calm
	}
	return slow
}

func (w *World) lateness() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late
}

// callWebhook calls a replica, which the seed chooses.
func (w *World) callWebhook(ctx context.Context, hook admissionregistrationv1.MutatingWebhook, body []byte) ([]byte, error) {
	if hook.Name == refusal {
		return w.refuses(body)
	}
	if w.left(webhooksAreLate) > 0 {
		sleep(ctx, w.lateness())
	}
	ready := slices.DeleteFunc(slices.Clone(w.replicas), func(p *process) bool { return p.serving.Load() == nil })
	if w.left(webhooksAreAway) > 0 || len(ready) == 0 || ctx.Err() != nil {
		return nil, errUnreachable
	}
	replica := ready[w.scheduler.choose(hook.Name, len(ready))]
	sleep(ctx, w.left(freezeOf(replica.name)))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	chosen, asked := replica.serving.Load(), w.history.now()
	handler, path := chosen.management, ""
	if at := hook.ClientConfig.URL; at != nil {
		parsed, err := url.Parse(*at)
		if err != nil {
			return nil, err
		}
		handler, path = chosen.workload, parsed.RequestURI()
	} else if service := hook.ClientConfig.Service; service != nil && service.Path != nil {
		path = *service.Path
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, answered := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(answered)
		handler.ServeHTTP(answer, request)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if answer.Code != http.StatusOK {
		return nil, fmt.Errorf("the webhook answered %d: %s", answer.Code, strings.TrimSpace(answer.Body.String()))
	}
	w.history.must(w.history.answered(replica.name, asked, body, answer.Body.Bytes()))
	return answer.Body.Bytes(), nil
}

// objects returns all objects of a kind as they are stored.
func (c *cluster) objects(kind string) []*unstructured.Unstructured {
	return c.server.Objects(resources[kind])
}
