// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"net/http"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
)

func TestConnectionsAreClosedOnceToldToStop(t *testing.T) {
	Expect := NewWithT(t).Expect
	told := make(chan struct{})
	server := httptest.NewServer(draining{http.NotFoundHandler(), told})
	defer server.Close()
	closed := func() bool {
		response, err := http.Get(server.URL)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusNotFound))
		return response.Close
	}
	Expect(closed()).To(BeFalse())
	close(told)
	Expect(closed()).To(BeTrue())
}
