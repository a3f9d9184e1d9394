// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// comeAndGo installs, restarts, kills, upgrades and stops Heirloom for good, each in the middle of a rollout. Every time the
// rollout ends as without Heirloom, and Cluster API creates nothing more for it.
func comeAndGo(p *pair) {
	p.do(func(w *world) { w.deploy(declared()) })
	settle(p.alone, p.together)
	w := p.together
	var next *stage.Replica
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"installed", func() error {
			w.Expect(w.StartHeirloom(w.ctx)).To(Succeed())
			return w.InstallWebhooks(w.ctx, w.WebhookURL)
		}},
		{"restarted, and killed", func() error {
			w.Expect(w.StopHeirloom()).To(Succeed())
			w.Expect(w.StartHeirloom(w.ctx)).To(Succeed())
			w.Expect(w.Heirloom.Kill()).To(Succeed())
			return w.StartHeirloom(w.ctx)
		}},
		{"upgraded", func() (err error) {
			next, err = w.StartReplica(w.ctx, "next")
			w.Expect(err).NotTo(HaveOccurred())
			w.Expect(w.InstallWebhooks(w.ctx, next.WebhookURL)).To(Succeed())
			return w.StopHeirloom()
		}},
		{"stopped for good", func() error { return next.Stop() }},
	} {
		p.do(func(w *world) { w.rollOutAs(step.name) })
		w.Eventually(w.bootstrappedWith).
			Should(And(ContainElement(step.name[:2]), ContainElement(Not(Equal(step.name[:2])))), "in the middle of the rollout")
		w.Expect(step.do()).To(Succeed(), step.name)
		p.expectNothingMore(step.name)
		if step.name == "upgraded" {
			w.expectLeader(next.MetricsURL)
		}
	}

	w.Expect(w.RemoveWebhooks(w.ctx)).To(Succeed())
	p.do(func(w *world) {
		w.change(func(md *clusterv1.MachineDeployment) { md.Spec.Replicas = ptr.To(int32(3)) })
	})
	p.expectNothingMore("removed")
}

// expectLeader waits until a program leads, so that its loop is at work.
func (w *world) expectLeader(metrics string) {
	w.t.Helper()
	w.Eventually(func() (string, error) { return stage.Metrics(w.ctx, metrics) }).
		Should(MatchRegexp(`(?m)^leader_election_master_status\{.*\} 1$`))
}

// rollOutAs makes Cluster API replace every Machine, by one with another label.
func (w *world) rollOutAs(name string) {
	w.change(func(md *clusterv1.MachineDeployment) {
		md.Spec.Template.Labels["node.cluster.x-k8s.io/pool"] = name[:2]
		md.Spec.Template.Spec.Bootstrap.DataSecretName = ptr.To(name[:2])
	})
}

// bootstrappedWith are the names of the Secrets that Machines were made with.
func (w *world) bootstrappedWith() []string {
	var names []string
	for _, machine := range w.machines(plain) {
		name, _, err := unstructured.NestedString(machine.Object, "spec", "bootstrap", "dataSecretName")
		w.Expect(err).NotTo(HaveOccurred())
		names = append(names, name)
	}
	return names
}
