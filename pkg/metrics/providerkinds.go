// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// providerKinds collects which kinds of providers have been listed, as that is when somebody looks.
type providerKinds struct {
	listed func() map[string]bool
}

func (providerKinds) desc() *prometheus.Desc {
	return prometheus.NewDesc("heirloom_provider_kind_listed",
		"1 where the API server has listed a provider's kind that Heirloom reads, 0 where its objects have to wait for that; as \"<kind>.<group>\".",
		[]string{"provider_kind"}, nil)
}

// Describe implements prometheus.Collector.
func (k providerKinds) Describe(descs chan<- *prometheus.Desc) {
	descs <- k.desc()
}

// Collect implements prometheus.Collector.
func (k providerKinds) Collect(metrics chan<- prometheus.Metric) {
	for kind, listed := range k.listed() {
		value := 0.0
		if listed {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(k.desc(), prometheus.GaugeValue, value, kind)
	}
}
