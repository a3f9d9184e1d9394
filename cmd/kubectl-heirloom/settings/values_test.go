// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/controlplane"
)

// unimportant returns the flags of the chart's Deployment that do not affect the plugin's answers, with the reason.
func unimportant() sets.Set[string] {
	const (
		serving = "webhook-port webhook-cert-dir webhook-cert-secret webhook-cert-dns-names " +
			"webhook-client-ca-file webhook-client-names workload-webhook-port tls-min-version tls-cipher-suites " +
			"tls-curve-preferences health-addr diagnostics-address insecure-diagnostics shutdown-delay"
		logging = "v vmodule logging-format log-flush-frequency"
		pace    = "leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period kube-api-qps kube-api-burst"
	)
	return sets.New(strings.Fields(serving + " " + logging + " " + pace)...)
}

const allValues = `
watchNamespace: fleet
watchFilter: blue
syncPeriod: 1h30m
noExecuteRate: 0.5
noExecute: budgets
noExecuteDeadline: 1h
mode: observe
enrollment: labeled
perClusterSyncAllowed: ["example.com/*", team]
workerRole: worker
zoneFromFailureDomain: true
facts: [{group: infrastructure.cluster.x-k8s.io, kind: AcmeMachine, fieldPath: "metadata.labels['a/b']", label: example.com/b},
  {group: infrastructure.cluster.x-k8s.io, kind: AcmeMachine, fieldPath: 'spec.nics[0].name', label: example.com/c, values: {a<b: x}},
  {group: infrastructure.cluster.x-k8s.io, kind: AcmeMachine, fieldPath: spec.spot, label: example.com/d, presence: true, values: {}}]
managementCluster: fleet/self
clusterAPITaintPropagation: enabled
additionalSyncMachineLabels: ['^example\.com/', "b"]
additionalSyncMachineAnnotations: [note$]
additionalProviderGroups: [infrastructure.example.com]
workloadClusters: {admission: webhook, webhookURL: "https://heirloom.example.com:8443/base", concurrency: 2000000, clientQPS: 0.5, clientBurst: 2000000}
`

// The chart's Deployment and the plugin derive the same flags from the same values.
func TestValuesBecomeTheChartsFlags(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files []string
	}{
		{"the chart's own", []string{"{}"}},
		{"everything", []string{allValues}},
		{"further arguments", []string{allValues, `extraArgs: ["--namespace=other", "--no-execute-rate=7"]`}},
		{"workload clusters are skipped", []string{`workloadClusters: {enabled: false}`}},
		{"another name", []string{allValues, "nameOverride: inherit"}},
		{"another whole name", []string{allValues, "fullnameOverride: inherit"}},
		{"a later file", []string{allValues, `{workloadClusters: {concurrency: 3}, additionalSyncMachineLabels: [c], leaderElection: {enabled: false}, replicaCount: 1}`}},
		{"several namespaces", []string{allValues, `watchNamespace: [fleet, edge]`}},
		{"empty ones", []string{`{watchNamespace: "", watchFilter: "", managementCluster: "", perClusterSyncAllowed: [], additionalSyncMachineLabels: [], workloadClusters: {webhookURL: ""}}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			files, all := write(t, tc.files)
			s := Settings{}
			fromChart := s.parse(ManagerOf(rendered(t, all)).Args)
			Expect(s.Notes).To(BeEmpty())
			flags, err := fromValues(files)
			Expect(err).NotTo(HaveOccurred())
			_, ours, err := flagsOfServer(flags)
			Expect(err).NotTo(HaveOccurred())
			fromChart.Visit(func(flag *pflag.Flag) {
				if !unimportant().Has(flag.Name) {
					Expect(ours.Lookup(flag.Name).Value.String()).To(Equal(flag.Value.String()), "--%s", flag.Name)
				}
			})
			ours.Visit(func(flag *pflag.Flag) {
				if flag.Name == "webhook-configuration" || flag.Name == "workload-webhook-key-secret" {
					return // the chart passes these flags only if the server needs them
				}
				Expect(fromChart.Lookup(flag.Name).Value.String()).To(Equal(flag.Value.String()), "--%s", flag.Name)
			})
		})
	}
}

func TestFromFiles(t *testing.T) {
	Expect := NewWithT(t).Expect
	files, _ := write(t, []string{allValues})
	s, err := (&Flags{Values: files, ServerFlags: []string{"--watch-filter=red"}}).Offline()
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Config.WatchFilter).To(Equal("red"))
	Expect(s.Config.ProviderGroups).To(ContainElement("infrastructure.example.com"))
	Expect(s.Origin).To(Equal("--values " + files[0] + ", --server-flags"))
	for content, want := range map[string]string{
		"leaderElection: 3": "at '/leaderElection': got number, want object", "noExecuteRate: often": "at '/noExecuteRate': got string, want number", "[": "--values ",
		"namespace: fleet": "set watchNamespace", "typo: 1": "the chart refuses them:\n- at '': additional properties 'typo' not allowed",
	} {
		files, _ := write(t, []string{content})
		_, err := (&Flags{Values: files}).Offline()
		Expect(err).To(MatchError(ContainSubstring(want)))
	}
}

// write returns files with these values, and the merged values of all.
func write(t *testing.T, contents []string) (files []string, all map[string]any) {
	t.Helper()
	for _, content := range contents {
		file := filepath.Join(t.TempDir(), "values.yaml")
		NewWithT(t).Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
		files = append(files, file)
		values := map[string]any{}
		_ = yaml.Unmarshal([]byte(content), &values) // if the content is no map, the plugin reports it
		all = loader.MergeMaps(all, values)          // as Helm merges values
	}
	return files, all
}

func rendered(t *testing.T, values map[string]any) *appsv1.Deployment {
	t.Helper()
	Expect := NewWithT(t).Expect
	root, err := controlplane.RepositoryRoot(t.Context())
	Expect(err).NotTo(HaveOccurred())
	objects, err := controlplane.RenderChart(t.Context(), filepath.Join(root, "deploy", "chart", "heirloom"),
		controlplane.ChartOptions{Namespace: usual, Values: values})
	Expect(err).NotTo(HaveOccurred())
	d := &appsv1.Deployment{}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d)).To(Succeed())
		}
	}
	Expect(d.Name).NotTo(BeEmpty())
	return d
}

// The plugin finds the chart's Deployment with any labels and names.
func TestTheChartsDeploymentIsFound(t *testing.T) {
	for _, values := range []map[string]any{
		{}, {"nameOverride": "inherit"}, {"commonLabels": map[string]any{partOfLabel: "platform"}}, {"fullnameOverride": "inherit"},
	} {
		Expect := NewWithT(t).Expect
		d := rendered(t, values)
		s, err := (&Flags{}).Read(t.Context(), with(nil, d, core(gateOn)))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Known).To(BeTrue())
		Expect(s.Config.WebhookConfiguration).To(Equal(d.Name))
		Expect(s.Version).NotTo(BeEmpty())
	}
}
