// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

// byHost counts the requests to all workload clusters under one host: kubeconfigs choose the hosts, and each host would be a series that
// stays as long as the program.
type byHost struct {
	clientmetrics.ResultMetric
	management string
}

// Increment implements clientmetrics.ResultMetric.
func (b byHost) Increment(ctx context.Context, code, method, host string) {
	if host != b.management {
		host = "workload"
	}
	b.ResultMetric.Increment(ctx, code, method, host)
}

// countRequests makes rest_client_requests_total count as byHost does, once for the program.
func countRequests(management *rest.Config) error {
	if _, already := clientmetrics.RequestResult.(byHost); already {
		return nil
	}
	server, _, err := rest.DefaultServerUrlFor(management)
	if err != nil {
		return fmt.Errorf("reading the address of the management cluster: %w", err)
	}
	clientmetrics.RequestResult = byHost{clientmetrics.RequestResult, server.Host}
	return nil
}
