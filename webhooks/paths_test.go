// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestBothPathsAnswerTheSame: what is prepared and remembered leads to the answers of the plain path, to the byte, through all the states
// of the owners. The same deciders see all states, so what they keep of one must not count in the next.
func TestBothPathsAnswerTheSame(t *testing.T) {
	extra := []*regexp.Regexp{regexp.MustCompile(`^extra\.`)}
	enabled, disabled := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}, inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}
	paced := inherit.Policy{PaceEviction: true, AdditionalLabels: extra, AdditionalAnnotations: extra}
	for kind, policies := range map[string][]inherit.Policy{
		"MachineSet": {enabled, disabled, paced}, "MachineDeployment": {enabled, disabled}, "ClusterClass": {enabled},
	} {
		for _, policy := range policies {
			t.Run(fmt.Sprintf("%s declares, %s", kind, policy.ClusterAPITaints), func(t *testing.T) {
				t.Parallel()
				now := &sceneReader{}
				s := newServer(t, fleet{}, nil, policy)
				s.Chain.Reader = now
				p := play{t: t, server: s, now: now, handlers: decidersOf(s.Dependencies)}
				injected := 0
				for _, user := range byUsers() {
					injected += p.through(kind, user)
				}
				NewWithT(t).Expect(injected).To(BeNumerically(">", 50), "there is something to compare")
			})
		}
	}
}

// sceneReader reads the objects as they are in the state that is played.
type sceneReader struct{ client.Reader }

type play struct {
	t *testing.T
	server
	now      *sceneReader
	handlers map[string]decider
}

// through plays all states, and the first once more, with children to which a user sets this, and returns how many answers had a patch.
func (p play) through(kind string, user state) (injected int) {
	external := "{apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: InfraMachine, metadata: {namespace: ns, name: x, labels: {cluster.x-k8s.io/cluster-name: c}, " +
		"ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: ms, uid: ms}]}, spec: {}}"
	machine, node := string(raw(p.t, user.machine()).Raw), "{metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1}}, spec: {providerID: 'aws://1'}}"
	for _, s := range append(states(), states()[0]) {
		p.now.Reader = newUnchanging(p.t, s.below(kind, machine))
		machine = p.ask(write{kind: "Machine", object: machine, old: machine})
		for _, w := range []write{
			{kind: "Machine", object: user.machine()},
			{kind: "Machine", object: machine, old: machine},
			{kind: "Machine", object: p.without("labels", machine), old: machine},
			{kind: "Machine", object: s.machine(), old: machine},
			{kind: "Machine", object: strings.Replace(machine, `"node-role.kubernetes.io/tier":"`, `"node-role.kubernetes.io/tier":"not-`, 1), old: machine},
			{kind: "InfraMachine", object: external},
			{kind: "MachineSet", object: s.below(kind, machine).sets["ns/ms"]},
			{kind: "Node", object: node, user: "system:node:node-1"},
			{kind: "Node", object: p.without("labels", node), old: node},
			{kind: "Node", object: p.without("annotations", node), old: node},
		} {
			if p.ask(w) != w.object {
				injected++
			}
		}
		p.now.Reader = newUnchanging(p.t, s.below(kind, machine))
		node = p.ask(write{kind: "Node", object: node, old: node})
	}
	return injected
}

// ask returns what becomes of the object of a request.
func (p play) ask(w write) string {
	p.t.Helper()
	Expect := NewWithT(p.t).Expect
	path := map[string]string{"Machine": MachinesPath, "MachineSet": MachineSetsPath, "InfraMachine": ExternalPath, "Node": NodesPath}[w.kind]
	var review admissionv1.AdmissionReview
	Expect(json.Unmarshal([]byte(p.sameAnswerBy(p.t, p.handlers[path], path, w.review(p.t))), &review)).To(Succeed())
	Expect(review.Response.Allowed).To(BeTrue())
	if len(review.Response.Patch) == 0 {
		return w.object
	}
	patch, err := jsonpatch.DecodePatch(review.Response.Patch)
	Expect(err).NotTo(HaveOccurred())
	patched, err := patch.Apply(raw(p.t, w.object).Raw)
	Expect(err).NotTo(HaveOccurred())
	return string(patched)
}

// without returns an object without a part of its metadata.
func (p play) without(part, document string) string {
	object := map[string]any{}
	NewWithT(p.t).Expect(yaml.Unmarshal([]byte(document), &object)).To(Succeed())
	unstructured.RemoveNestedField(object, "metadata", part)
	text, err := json.Marshal(object)
	NewWithT(p.t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}
