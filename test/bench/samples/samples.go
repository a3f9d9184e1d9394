// SPDX-License-Identifier: Apache-2.0

// Package samples reads the metrics of programs that a benchmark measures.
package samples

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// Of returns the sum of each metric of a program. For metrics with a label "controller" or "host", it also returns the sum of each of its
// values, by "name value".
func Of(ctx context.Context, url string) (map[string]float64, error) {
	text, err := stage.Metrics(ctx, url)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			sums[name] += value
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" || label.GetName() == "host" {
					sums[name+" "+label.GetValue()] += value
				}
			}
		}
	}
	return sums, nil
}
