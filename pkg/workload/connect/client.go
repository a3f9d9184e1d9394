// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// requestTimeout bounds each request to a workload cluster but those that a cache lists and watches with.
const requestTimeout = 10 * time.Second

// RESTConfig says how a workload cluster is reached once, without a ClusterCache: with the same kubeconfig, and under the
// same conditions.
func RESTConfig(ctx context.Context, management client.Reader, cluster types.NamespacedName) (*rest.Config, error) {
	raw, err := kubeconfig.FromSecret(ctx, kubeconfigs{Reader: management}, cluster)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in the Secret %s-kubeconfig: %w", cluster, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in the Secret %s-kubeconfig: %w", cluster, err)
	}
	config.Timeout = requestTimeout
	return config, nil
}
