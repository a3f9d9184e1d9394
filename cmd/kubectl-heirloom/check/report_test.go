// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UPDATE=1 writes the golden files.
func golden(t *testing.T, name, got string) {
	t.Helper()
	Expect := NewWithT(t).Expect
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		Expect(os.MkdirAll("testdata", 0o755)).To(Succeed())
		Expect(os.WriteFile(path, []byte(got), 0o600)).To(Succeed())
	}
	want, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	Expect(got).To(Equal(string(want)))
}

// page is a fleet with something to tell.
func page(s *scenery) {
	s.node.Spec.Taints = nil
	s.nodes = append(s.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-7", UID: "worker-7"}})
	s.flag("--additional-sync-machine-labels=^team$")
	s.mutating.Webhooks[0].FailurePolicy = new(admissionv1.Fail)
}

func TestReport(t *testing.T) {
	for name, change := range map[string]func(*scenery){
		"healthy.golden": func(*scenery) {},
		"broken.golden": func(s *scenery) {
			s.deployment.Status.AvailableReplicas = 1
			s.mutating.Webhooks[0].MatchConditions = nil
			s.denied = []string{"Secret"}
			s.mute = true
			s.node.Spec.Taints = nil
		},
		// docs/kubectl.md has this one.
		"page.golden": page,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenery(t)
			change(s)
			var out strings.Builder
			NewWithT(t).Expect(s.checker().Run(t.Context()).Write(&out, false)).To(Succeed())
			golden(t, name, out.String())
		})
	}
}
