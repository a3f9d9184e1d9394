// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/pkg/workload/policy"
	plugin "github.com/heirloom-dev/heirloom/test/fleet"
	"github.com/heirloom-dev/heirloom/webhooks"
)

// For every Node, Machine and policy, the callers of PlanNode give the same answer: the webhook, the loop, the plugin's comparison, and the
// parameters of a policy. They differ only by their turns: with a rate, the webhook waits with NoExecute taints, and the first Node of the
// loop does not. Each run tries other cases; rapid prints the seed of a failure.
func TestTheCallersAgreeAboutANode(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(rt, name) }
		world := plugin.World(t, nil, "--cluster-api-taint-propagation="+one("gate", "enabled", "disabled"),
			"--additional-sync-machine-labels="+one("labels", "^$", "team", "."), "--no-execute-rate="+one("rate", "0", "1"))
		rules, m, n := world.Settings.Policy(), anyMachine(rt), anyNode(rt)
		if rapid.Bool().Draw(rt, "the Node has a record") {
			turn := inherit.Turn{Eviction: rapid.SampledFrom([]inherit.Eviction{inherit.EvictsNow, inherit.Waits, inherit.AsksPods}).Draw(rt, "turn")}
			set(n, rules.PlanNode(inherit.ReadNode(n, time.Now()), inherit.SourceOfMachine(anyMachine(rt)), turn).Result)
		}
		l := newLoop(t, theCluster(), machineSet(), machineDeployment(), m, n)
		l.policy, l.NoExecuteRate = rules, world.Settings.Config.NoExecuteRate
		world.Store, world.Now = plugin.World(t, l.server).Store, time.Now()

		compared := world.Node(t.Context(), key("c"), n.DeepCopy())
		l.Expect(compared.Err).NotTo(HaveOccurred())
		byWebhook := l.admits(n, n, authenticationv1.UserInfo{Username: "admin"})
		bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: corev1.NodeSpec{ProviderID: n.Spec.ProviderID}}
		registered := l.admits(bare, nil, authenticationv1.UserInfo{Username: "system:node:m", Groups: []string{user.NodesGroup}})
		parameters, err := policy.Parameters(t.Context(), []inherit.Machine{{Actual: m, Effective: m}}, rules)
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(l.lookAt("c", "m")).Error().NotTo(HaveOccurred())
		l.stored(n)

		for _, answers := range []struct {
			who        string
			one, other inherit.NodeState
		}{
			{"webhook and comparison", byWebhook, compared.Node.Plan.Result},
			{"loop and comparison", inherit.OfNode(n), compared.Node.Next},
			{"webhook and parameters", registered, decoded(parameters.Object["data"].(map[string]any))}, //nolint:forcetypeassert // it is our own
		} {
			if !answers.one.Equal(answers.other) {
				rt.Fatalf("%s differ:\n%+v\n%+v", answers.who, answers.one, answers.other)
			}
		}
	})
}

// anyMachine generates Machine m.
func anyMachine(rt *rapid.T) *clusterv1.Machine {
	m := machine("m", "MachineSet/ms")
	m.Labels, m.Annotations = anyMap(rt, "labels", pool, worker, "team", "node-restriction.kubernetes.io/q"), anyMap(rt, "annotations", "node.cluster.x-k8s.io/note", "note")
	m.Labels[clusterv1.ClusterNameLabel] = "c"
	m.Annotations[taint.AlwaysAnnotation] = anyTaints(rt, "always")
	m.Annotations[taint.InitializeAnnotation] = anyTaints(rt, "initialize")
	m.Annotations[taint.UntilAnnotation] = rapid.SampledFrom([]string{"", "gpu:NoSchedule until condition Net=True", "boot=1:NoExecute until condition Net=True"}).Draw(rt, "until")
	for _, t := range list(anyTaints(rt, "typed")) {
		m.Spec.Taints = append(m.Spec.Taints, clusterv1.MachineTaint{
			Key: t.Key, Value: t.Value, Effect: t.Effect,
			Propagation: rapid.SampledFrom([]clusterv1.MachineTaintPropagation{"Always", "OnInitialization"}).Draw(rt, "propagation"),
		})
	}
	return m
}

// anyNode generates the Node of Machine m.
func anyNode(rt *rapid.T) *corev1.Node {
	n := node("m")
	n.CreationTimestamp = metav1.NewTime(time.Now().Add(-rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(rt, "age")))
	n.Labels, n.Annotations = anyMap(rt, "labels", pool, worker, "team", "mine"), anyMap(rt, "annotations", "node.cluster.x-k8s.io/note", "mine")
	n.Spec.Taints = list(anyTaints(rt, "taints"))
	if rapid.Bool().Draw(rt, "uninitialized") {
		n.Spec.Taints = append(n.Spec.Taints, clusterv1.NodeUninitializedTaint)
	}
	for _, name := range inherit.TrackingAnnotations {
		switch {
		case !rapid.Bool().Draw(rt, name):
		case strings.Contains(name, "taints"):
			n.Annotations[name] = anyTaints(rt, name)
		default:
			n.Annotations[name] = strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{pool, worker, "team", "node.cluster.x-k8s.io/note"})).Draw(rt, name), ",")
		}
	}
	return n
}

func anyMap(rt *rapid.T, what string, keys ...string) map[string]string {
	return rapid.MapOf(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"", "1", "2"})).Draw(rt, what)
}

// anyTaints generates taints of which no two have the same key and effect.
func anyTaints(rt *rapid.T, what string) string {
	some := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"gpu", "gpu=1", "drain", "drain=1", "boot=1"}), 0, 3, func(s string) string { return s[:3] }).Draw(rt, what)
	for i := range some {
		some[i] += ":" + rapid.SampledFrom([]string{"NoSchedule", "NoExecute"}).Draw(rt, what)
	}
	return strings.Join(some, ",")
}

func list(s string) []corev1.Taint {
	taints, _ := taint.ParseList(s)
	return taints
}

func set(n *corev1.Node, state inherit.NodeState) {
	n.Labels, n.Annotations, n.Spec.Taints = state.Labels, state.Annotations, state.Taints
}

// hooks are the registered webhooks by path.
type hooks struct {
	webhook.Server
	at map[string]http.Handler
}

func (h hooks) Register(path string, handler http.Handler) { h.at[path] = handler }

// admits returns the state that the webhook gives to a Node, in a create if before is nil, otherwise in an update.
func (l *loop) admits(n, before *corev1.Node, by authenticationv1.UserInfo) inherit.NodeState {
	l.t.Helper()
	raw, err := json.Marshal(n)
	l.Expect(err).NotTo(HaveOccurred())
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Node"}, Name: n.Name, Operation: admissionv1.Create, UserInfo: by,
		Object: runtime.RawExtension{Raw: raw},
	}}
	if before != nil {
		review.Request.Operation, review.Request.OldObject.Raw = admissionv1.Update, raw
	}
	body, err := json.Marshal(review)
	l.Expect(err).NotTo(HaveOccurred())
	registered, answer := hooks{at: map[string]http.Handler{}}, httptest.NewRecorder()
	webhooks.Register(registered, webhooks.Dependencies{Chain: l.Chain, Metrics: l.Metrics, ManagementCluster: key("c"), Policy: l.Policy})
	request := httptest.NewRequest(http.MethodPost, webhooks.NodesPath, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	registered.at[webhooks.NodesPath].ServeHTTP(answer, request)
	l.Expect(json.Unmarshal(answer.Body.Bytes(), &review)).To(Succeed(), answer.Body.String())
	l.Expect(review.Response.Allowed).To(BeTrue())
	if len(review.Response.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(review.Response.Patch)
		l.Expect(err).NotTo(HaveOccurred())
		raw, err = patch.Apply(raw)
		l.Expect(err).NotTo(HaveOccurred())
	}
	becomes := &corev1.Node{}
	l.Expect(json.Unmarshal(raw, becomes)).To(Succeed())
	return inherit.OfNode(becomes)
}

// decoded returns the state that the parameters of a policy for a single Machine give to a bare Node. The package comment of policy
// describes the encoding.
func decoded(data map[string]any) inherit.NodeState {
	state := inherit.NodeState{Labels: map[string]string{}, Annotations: map[string]string{}}
	content, _ := data["c.1"].(string)
	lines := strings.Split(content, "\n")
	for _, pair := range strings.FieldsFunc(lines[1], func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(pair, "=")
		state.Labels[name] = value
	}
	state.Taints = list(lines[2])
	for _, pair := range lines[3:] {
		name, value, _ := strings.Cut(pair, "=")
		state.Annotations[name] = value
	}
	if lines[0] == "guard" {
		state.Annotations[inherit.UninitializedAnnotation] = "added"
		state.Taints = append(slices.Clone(state.Taints), clusterv1.NodeUninitializedTaint)
	}
	return state
}
