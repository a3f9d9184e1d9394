// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// What Cluster API takes away, because an owner no longer declares it, does not come back while the cache is behind. What
// somebody else takes away does.
func TestACacheThatIsBehind(t *testing.T) {
	const putsBack = `{"op":"add","path":"/metadata/labels","value":{"team":"a"}}`
	undeclared := ordinary.with(func(f *fleet) {
		f.sets = map[string]string{"ns/ms": "{metadata: {" + byDeployment + "}, spec: {clusterName: c}}"}
		f.deployments = map[string]string{"ns/md": "{spec: {clusterName: c}}"}
	})
	removal := write{kind: "Machine", object: machine(bySet), old: machine(bySet + ", labels: {team: a}")}
	labelled := func(f fleet, labels string) fleet {
		f.machines = map[string]string{"ns/m": "{metadata: {" + bySet + ", labels: " + labels + "}, spec: {clusterName: c}, status: {nodeRef: {name: node-1}}}"}
		return f
	}
	tracked := func(labels, keys string) string {
		labels = strings.Replace(labels, "}", " heirloom.node-restriction.kubernetes.io/record: "+recorded("")+"}", 1)
		return "{metadata: {name: node-1, labels: " + labels + ", annotations: {cluster.x-k8s.io/labels-from-machine: '" + keys + "', cluster.x-k8s.io/taints-from-machine: ''}}}"
	}
	const key = "node.cluster.x-k8s.io/a"
	fromNode := write{kind: "Node", object: tracked("{}", ""), old: tracked("{"+key+": '1',}", key)}
	for _, tc := range []struct {
		name        string
		cache, live fleet
		request     write
		want        []string
	}{
		{"an owner that no longer declares it", ordinary, undeclared, removal, nil},
		{"an owner that declares it", ordinary, ordinary, removal, []string{putsBack}},
		{"an owner that has gone", ordinary, fleet{clusters: ordinary.clusters}, removal, nil},
		{"an API server that does not answer", ordinary, fleet{err: errors.New("timeout")}, removal, []string{putsBack}},
		{"a later write", ordinary, undeclared, write{kind: "Machine", object: machine(bySet), old: machine(bySet)}, nil},
		{"a Cluster that has been paused", ordinary, ordinary.with(func(f *fleet) { f.clusters = map[string]string{"ns/c": "spec: {paused: true}"} }), removal, nil},
		{"a create", ordinary, undeclared, write{kind: "Machine", object: machine(bySet)}, []string{putsBack}},
		{"a Node whose Machine no longer has it", labelled(ordinary, "{"+key+": '1'}"), labelled(undeclared, "{}"), fromNode, nil},
		{"a Node whose Machine has gone", labelled(ordinary, "{"+key+": '1'}"), undeclared, fromNode, nil},
		{"a Node whose Machine has it", labelled(ordinary, "{"+key+": '1'}"), labelled(undeclared, "{"+key+": '1'}"), fromNode, []string{
			`{"op":"add","path":"/metadata/labels","value":{"heirloom.node-restriction.kubernetes.io/record":"` + recorded("") + `","` + key + `":"1"}}`,
			`{"op":"add","path":"/metadata/annotations","value":{"cluster.x-k8s.io/labels-from-machine":"` + key + `","cluster.x-k8s.io/taints-from-machine":""}}`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, tc.cache, tc.live, inherit.Policy{})
			NewWithT(t).Expect(patch(t, s.asks(t, tc.request.request(t)))).To(Equal(tc.want))
		})
	}
}
