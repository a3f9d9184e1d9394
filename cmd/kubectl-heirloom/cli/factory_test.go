// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

// The plugin gives up on a workload cluster that does not answer, with every kind of connection.
func TestWorkloadClustersAreNotWaitedForWithoutEnd(t *testing.T) {
	stuck := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	t.Cleanup(func() { close(stuck); server.Close() })
	kubeconfig := []byte(strings.ReplaceAll(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: URL}}], users: [{name: u, user: {}}]}`, "URL", server.URL))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	NewWithT(t).Expect(os.WriteFile(file, kubeconfig, 0o600)).To(Succeed())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}}
	for name, path := range map[string]string{"--workload-kubeconfig": file, "Cluster API's": ""} {
		t.Run(name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			m := &Management{Client: fake.NewFakeClient(secret), REST: &rest.Config{Timeout: 10 * time.Millisecond}}
			workload, err := (&Factory{WorkloadKubeconfig: path}).Workload(t.Context(), m, types.NamespacedName{Namespace: "fleet", Name: "prod"})
			Expect(err).NotTo(HaveOccurred())
			Expect(workload.List(t.Context(), &corev1.NodeList{})).NotTo(Succeed())
			config, err := (&Factory{WorkloadKubeconfig: path}).workloadConfig(t.Context(), &Management{Client: m.Client, REST: &rest.Config{}}, types.NamespacedName{Namespace: "fleet", Name: "prod"})
			Expect(err).NotTo(HaveOccurred())
			Expect(config.Timeout).To(Equal(10*time.Second), "unless --request-timeout says something else")
		})
	}
}

// If the management cluster is also a Cluster, the plugin reads it as the management cluster, without its kubeconfig.
func TestTheManagementClusterIsItsOwnWorkloadCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	f, self := &Factory{ManagementCluster: "fleet/mgmt", Settings: settings.Flags{ServerFlags: []string{""}}}, types.NamespacedName{Namespace: "fleet", Name: "mgmt"}
	m := &Management{Client: fake.NewFakeClient(), REST: &rest.Config{}}
	_, err := f.ReadSettings(t.Context(), m)
	Expect(err).NotTo(HaveOccurred())
	Expect(f.Workload(t.Context(), m, self)).To(BeIdenticalTo(m.Client))
	_, err = f.Workload(t.Context(), m, types.NamespacedName{Namespace: "fleet", Name: "prod"})
	Expect(err).To(MatchError(ContainSubstring(`secrets "prod-kubeconfig" not found`)))
}

func TestProgress(t *testing.T) {
	for takes, want := range map[time.Duration]string{quiet - time.Millisecond: "", quiet + time.Millisecond: "Reading 3 Clusters …\n"} {
		synctest.Test(t, func(t *testing.T) {
			var errOut bytes.Buffer
			f := &Factory{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}}
			done := f.Progress("Reading %d Clusters", 3)
			<-time.After(takes) // in the test's fake time
			synctest.Wait()
			done()
			NewWithT(t).Expect(errOut.String()).To(Equal(want))
		})
	}
}
