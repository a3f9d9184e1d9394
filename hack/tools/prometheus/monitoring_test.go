// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test checks deploy/monitoring with Prometheus' own parser, and compares it with the pages of docs. It is in its own
// module, because the parser has more dependencies than the rest of Heirloom.
package monitoring_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const (
	root     = "../../.."
	runbooks = "https://github.com/heirloom-dev/heirloom/blob/main/docs/runbooks/"
)

// documented returns the metrics of docs/monitoring.md with their labels.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "monitoring.md"))
	require.NoError(t, err)
	code := regexp.MustCompile("`([a-z_]+)`")
	metrics := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|").FindAllStringSubmatch(string(page), -1) {
		var labels []string
		for _, label := range code.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, label[1])
		}
		metrics[row[1]] = labels
		if row[2] == "histogram" {
			metrics[row[1]+"_bucket"] = append(slices.Clone(labels), "le")
			metrics[row[1]+"_sum"], metrics[row[1]+"_count"] = labels, labels
		}
	}
	require.NotEmpty(t, metrics)
	return metrics
}

// alerts returns the alerts of deploy/monitoring/alerts.yaml.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(root, "deploy", "monitoring", "alerts.yaml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	var rules []rulefmt.Rule
	for _, group := range groups.Groups {
		rules = append(rules, group.Rules...)
	}
	require.NotEmpty(t, rules)
	return rules
}

// Every expression of alerts and dashboard is valid, and queries only documented metrics.
func TestExpressionsQueryDocumentedMetrics(t *testing.T) {
	metrics := documented(t)
	for _, rule := range alerts(t) {
		expectKnown(t, metrics, rule.Expr)
	}
	dashboard, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", "dashboard.json"))
	require.NoError(t, err)
	queries := regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllSubmatch(dashboard, -1)
	require.NotEmpty(t, queries)
	for _, query := range queries {
		expression, err := strconv.Unquote(string(query[1]))
		require.NoError(t, err)
		// Grafana replaces this variable with the interval of its points.
		expectKnown(t, metrics, strings.ReplaceAll(expression, "$__rate_interval", "5m"))
	}
}

func expectKnown(t *testing.T, metrics map[string][]string, expression string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	require.NoError(t, err, expression)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		require.Contains(t, metrics, selector.Name, "docs/monitoring.md does not list a metric of %s", expression)
		for _, matcher := range selector.LabelMatchers {
			// The scrape adds these labels to every metric.
			if !slices.Contains([]string{"__name__", "job", "instance"}, matcher.Name) {
				require.Contains(t, metrics[selector.Name], matcher.Name, "a label in %s", expression)
			}
		}
		return nil
	})
}

// Each alert has a runbook, and each runbook an alert.
func TestEveryAlertHasARunbook(t *testing.T) {
	var fromAlerts []string
	for _, rule := range alerts(t) {
		require.Equal(t, runbooks+rule.Alert+".md", rule.Annotations["runbook_url"])
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		require.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
		fromAlerts = append(fromAlerts, rule.Alert+".md")
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "runbooks", "*.md"))
	require.NoError(t, err)
	var names []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, section := range []string{"## Meaning", "## Impact", "## Diagnosis", "## Mitigation"} {
			require.Contains(t, string(text), section+"\n", page)
		}
		names = append(names, filepath.Base(page))
	}
	require.ElementsMatch(t, fromAlerts, names)
}
