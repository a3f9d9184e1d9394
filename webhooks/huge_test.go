// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

// hugeReview is nearly the largest review that is read.
const hugeReview = 3 << 20

// filling is a list of texts of that size in all, each text with another number.
func filling(size int, format string) string {
	var all strings.Builder
	for i := 0; all.Len() < size; i++ {
		if i > 0 {
			all.WriteByte(',')
		}
		fmt.Fprintf(&all, format, i)
	}
	return all.String()
}

// A review of one's own may be as large as it likes: what it costs grows with its size, and no faster. Where it did, these
// tests would not end.
func TestHugeReviewsAreAnswered(t *testing.T) {
	declares := "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {namespace: ns, name: m, labels: {team: a}, annotations: {taints.heirloom.dev/always: 'x:NoSchedule'}}, spec: {clusterName: c}, status: {nodeRef: {name: node-1}}}"
	with := ordinary.with(func(f *fleet) { f.machines = map[string]string{"ns/m": declares} })
	for name, tc := range map[string]struct{ path, kind, object string }{
		"taints of a Node":           {path: NodesPath, kind: "Node", object: `{"metadata":{"name":"node-1"},"spec":{"taints":[` + filling(hugeReview/2, `{"key":"k%d","effect":"x"}`) + `]}}`},
		"addresses of a Node":        {path: NodesPath, kind: "Node", object: `{"metadata":{"name":"node-1"},"status":{"addresses":[` + filling(hugeReview/2, `{"type":"InternalIP","address":"%d"}`) + `]}}`},
		"tracked taints of a Node":   {path: NodesPath, kind: "Node", object: `{"metadata":{"name":"node-1","annotations":{"heirloom.dev/taints-from-machine":"` + filling(hugeReview/4, "k%d:x") + `"}},"spec":{"taints":[` + filling(hugeReview/4, `{"key":"k%d","effect":"y"}`) + `]}}`},
		"taints of a Machine":        {path: PathOf(owners.Machines), kind: "Machine", object: `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"namespace":"ns","name":"m","ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineSet","name":"ms","uid":"ms","controller":true}]},"spec":{"clusterName":"c","taints":[` + filling(hugeReview/2, `{"key":"k%d","effect":"x"}`) + `]}}`},
		"annotated taints":           {path: PathOf(owners.Machines), kind: "Machine", object: `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Machine","metadata":{"namespace":"ns","name":"m","annotations":{"taints.heirloom.dev/always":"` + filling(hugeReview/2, "k%d:NoExecute") + `"}},"spec":{"clusterName":"c"}}`},
		"taints to validate":         {path: TaintsPath, kind: "Machine", object: `{"spec":{"taints":[` + filling(hugeReview/2, `{"key":"k%d","effect":"NoSchedule","propagation":"Always"}`) + `]}}`},
		"invalid taints to validate": {path: TaintsPath, kind: "Machine", object: `{"metadata":{"annotations":{"taints.heirloom.dev/always":"` + filling(hugeReview/2, "k%d") + `"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			handler := mux(t, newServer(t, with, nil, inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled, PaceEviction: true}))
			body := write{kind: tc.kind, object: tc.object, old: tc.object}.review(t)
			review := ask(t, handler, tc.path, body)
			NewWithT(t).Expect(review.Response.UID).To(BeEquivalentTo("uid"), "%+v", review.Response.Result)
		})
	}
}
