// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/cli"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
)

// However many Nodes of a Cluster are explained, its kubeconfig is read once.
func TestNodesShareAConnection(t *testing.T) {
	g := NewWithT(t)
	asked := 0
	management := &cli.Management{Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			asked++
			return c.Get(ctx, key, object, options...)
		},
	}).Build()}
	as, err := (&settings.Flags{}).Offline()
	g.Expect(err).NotTo(HaveOccurred())
	f := &cli.Factory{IOStreams: genericiooptions.NewTestIOStreamsDiscard(), Config: genericclioptions.NewConfigFlags(true)}
	explainer := (&explainOptions{Factory: f}).explainer(management, as)
	for range 3 {
		_, err := explainer.Nodes(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"})
		g.Expect(err).To(MatchError(ContainSubstring("prod-kubeconfig")))
	}
	g.Expect(asked).To(Equal(1))
}
