// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/test/controlplane"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// GitOps tools install Cluster API and Heirloom at once. The program waits for Cluster API's kinds: it lives, it is not ready, and it
// goes on by itself.
func TestTheProgramWaitsForClusterAPI(t *testing.T) {
	t.Parallel()
	on, err := planes.Lend(t.Context(), controlplane.Options{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(on.Stop()).To(Succeed()) })
	s := sceneOn(t, on, stage.Options{WithoutProgram: true})
	started := make(chan error, 1)
	go func() { started <- s.StartHeirloom(s.ctx) }()

	probe := func(path string) int {
		request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.HealthURL+path, http.NoBody)
		s.Expect(err).NotTo(HaveOccurred())
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		s.Expect(response.Body.Close()).To(Succeed())
		return response.StatusCode
	}
	s.Eventually(func() int { return probe("/healthz") }).WithTimeout(patience).WithPolling(polling).Should(Equal(http.StatusOK))
	s.Expect(probe("/readyz")).To(Equal(http.StatusServiceUnavailable))
	s.Expect(started).NotTo(Receive())

	withKinds, err := stage.ControlPlaneOptions(s.ctx, controlplane.Options{})
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.InstallCRDs(s.ctx, withKinds.CRDPaths...)).To(Succeed())
	s.Eventually(started).WithTimeout(patience).Should(Receive(BeNil()), "it becomes ready")
	s.Expect(probe("/readyz")).To(Equal(http.StatusOK))
	log := s.read(s.HeirloomLog())
	s.Expect(strings.Count(log, "Waiting for Cluster API")).To(Equal(1), log)
	s.Expect(log).To(ContainSubstring("install Cluster API v1.11 or later first"))

	f := s.settle("late", declared())
	s.Expect(f.m.Labels).To(HaveKeyWithValue("team", "ml"))
}
