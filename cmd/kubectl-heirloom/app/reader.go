// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/origin"
	"github.com/heirloom-dev/heirloom/pkg/capabilities"
	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/version"
)

// connect connects to the management cluster and finds out which version of Cluster API it serves.
func connect(config *genericclioptions.ConfigFlags, warnings io.Writer) (*origin.Explainer, error) {
	restConfig, err := config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	restConfig.UserAgent = "kubectl-heirloom/" + version.String()
	restConfig.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	mapper, err := config.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("discovering the API server's kinds: %w", err)
	}
	served, err := capi.Version(mapper)
	if err != nil {
		return nil, fmt.Errorf("looking for Cluster API at %s (--context or --kubeconfig chooses another cluster): %w", restConfig.Host, err)
	}
	discovery, err := config.ToDiscoveryClient()
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server's discovery: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering Kubernetes' types: %w", err)
	}
	capi.AddToScheme(scheme, served)
	live, err := client.New(restConfig, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return origin.New(live, &capabilities.Schemas{Client: discovery.OpenAPIV3()}), nil
}
