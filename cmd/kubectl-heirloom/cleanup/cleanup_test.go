// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/pkg/cleanup"
)

// given returns the settings of a server in namespace hs with these flags.
func given(t *testing.T, flags string) settings.Settings {
	t.Helper()
	s, err := (&settings.Flags{ServerFlags: []string{flags}}).Offline()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s.Deployment = types.NamespacedName{Namespace: "hs", Name: "own"}
	s.Origin = "Deployment hs/own"
	return s
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name    string
		flags   string
		change  func(*settings.Settings)
		dryRun  bool
		one     bool
		running int32
		problem string
	}{
		{name: "all is known", flags: "--leader-elect --leader-elect-namespace=hs", running: 2},
		{name: "no settings", change: func(s *settings.Settings) { s.Known, s.Notes = false, []string{"They are unknown."} }, one: true,
			problem: `a cleanup needs the settings of Heirloom. They are unknown. If all settings are or were the defaults, use --server-flags=""`},
		{name: "several", change: func(s *settings.Settings) { s.Others = []types.NamespacedName{{Namespace: "b", Name: "two"}} }, dryRun: true,
			problem: "found several Heirlooms, such as hs/own and b/two (use --heirloom-namespace)"},
		{name: "no namespace of the Lease", problem: "the namespace of the leader's Lease is unknown: set --heirloom-namespace to the namespace in which Heirloom is or was installed"},
		{name: "which a dry run does not need", dryRun: true},
		{name: "nor does one object", one: true},
		{name: "a server without leader election", flags: "--leader-elect-namespace=hs", running: 1,
			problem: "without leader election, no Lease shows when Heirloom has stopped: stop it first, and wait until its Pods are gone:\n  kubectl scale deployment own --namespace hs --replicas=0"},
		{name: "which has stopped", flags: "--leader-elect-namespace=hs"},
		{name: "which runs elsewhere", flags: "--leader-elect-namespace=hs", running: 1, change: func(s *settings.Settings) { s.Deployment = types.NamespacedName{} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "hs", Name: "own"}, Status: appsv1.DeploymentStatus{Replicas: tc.running}}
			s := given(t, tc.flags)
			if tc.change != nil {
				tc.change(&s)
			}
			err := Check(t.Context(), fake.NewClientBuilder().WithObjects(d).Build(), &s, "", tc.dryRun, tc.one)
			if tc.problem == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			} else {
				NewWithT(t).Expect(err).To(MatchError(tc.problem))
			}
		})
	}
}

// Given settings may belong to a Helm release with another name. Its webhooks and its Deployment are found, so Heirloom does not count as
// stopped.
func TestAReleaseWithAnotherName(t *testing.T) {
	Expect := NewWithT(t).Expect
	labels := map[string]string{"app.kubernetes.io/part-of": "heirloom", "app.kubernetes.io/component": "manager"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "hs", Name: "fleet-heirloom", Labels: labels}, Status: appsv1.DeploymentStatus{Replicas: 1}}
	s := given(t, "--leader-elect --webhook-configuration=heirloom --leader-elect-namespace=heirloom-system")
	s.Deployment = types.NamespacedName{}
	Expect(Check(t.Context(), fake.NewFakeClient(d), &s, "", false, false)).To(Succeed())
	Expect(s.Config.WebhookConfiguration).To(Equal("fleet-heirloom"))
	Expect(s.Config.LeaderElectNamespace).To(Equal("hs"))

	s = given(t, "--leader-elect=false")
	s.Deployment = types.NamespacedName{}
	Expect(Check(t.Context(), fake.NewFakeClient(d), &s, "", false, false)).To(MatchError(HavePrefix("without leader election, no Lease shows when Heirloom has stopped")))
}

func TestDescribe(t *testing.T) {
	const all = "This gives up everything that Heirloom owns in this management cluster and on the Nodes of all workload clusters "
	NewWithT(t).Expect(Describe(given(t, ""), cleanup.Options{})).To(Equal(all + "(in all namespaces; settings of Deployment hs/own).\n" + removed))
	what := cleanup.Options{Stop: true, Mode: cleanup.Mode{KeepValues: true}}
	NewWithT(t).Expect(Describe(given(t, "--namespace=fleet --watch-filter=blue --leader-elect-namespace=hs"), what)).To(Equal(
		all + "(in namespace fleet, with watch filter blue; settings of Deployment hs/own).\n" +
			"It deletes the webhook configurations \"heirloom\" and scales Deployment hs/heirloom to 0 first.\n" +
			"Labels, annotations, taints and fields stay without an owner: nothing removes them later, even if you no longer declare them.\n" + shows))
}

func TestAsk(t *testing.T) {
	for answer, yes := range map[string]bool{"y\n": true, "\tYes\n": true, "yes": true, "n\n": false, "\n": false, "": false, "yesterday\n": false} {
		var out bytes.Buffer
		err := Ask(strings.NewReader(answer), &out, true, "What it does.")
		NewWithT(t).Expect(err == nil).To(Equal(yes), "%q: %v", answer, err)
		NewWithT(t).Expect(out.String()).To(Equal("What it does.\n\nContinue? [y/N] "))
	}
	NewWithT(t).Expect(Ask(strings.NewReader("y\n"), &bytes.Buffer{}, false, "What it does.")).To(MatchError(HavePrefix("no terminal to ask for confirmation: use --yes")))
}
