// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/deploy/chart"
)

// flagsOfValues maps values of the chart to flags of the server.
const flagsOfValues = `watchNamespace=namespace watchFilter=watch-filter syncPeriod=sync-period noExecuteRate=no-execute-rate
	noExecute=no-execute noExecuteDeadline=no-execute-deadline noExecuteClusters=no-execute-clusters noExecuteSoak=no-execute-soak
	perClusterNoExecute=per-cluster-no-execute
	additionalSyncMachineLabels=additional-sync-machine-labels additionalSyncMachineAnnotations=additional-sync-machine-annotations
	additionalProviderGroups=additional-provider-groups perClusterSyncAllowed=per-cluster-sync-allowed workerRole=worker-role mode=mode enrollment=enrollment managementCluster=management-cluster
	clusterAPITaintPropagation=cluster-api-taint-propagation leaderElection.enabled=leader-elect
	workloadClusters.enabled=workload-clusters workloadClusters.admission=workload-admission workloadClusters.webhookURL=workload-webhook-url
	workloadClusters.concurrency=clustercache-concurrency workloadClusters.clientQPS=clustercache-client-qps
	workloadClusters.clientBurst=clustercache-client-burst`

// fromValues returns the flags that the chart would give the server for these values, as far as they matter to the plugin.
func fromValues(files []string) ([]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	values, err := merged([]byte("{}"), files)
	if err != nil {
		return nil, err
	}
	if _, found := values["namespace"]; found {
		return nil, errors.New("--values: namespace: the chart refuses it; set watchNamespace to confine the watch")
	}
	if err := valid(files); err != nil {
		return nil, fmt.Errorf("--values: the chart refuses them:\n%w", err)
	}
	flags := []string{"--leader-elect=true"} // unless the values say otherwise
	for pair := range strings.FieldsSeq(flagsOfValues) {
		name, flag, _ := strings.Cut(pair, "=")
		value, found, err := unstructured.NestedFieldNoCopy(values, strings.Split(name, ".")...)
		if err != nil {
			return nil, fmt.Errorf("--values: %s: %w", name, err)
		}
		if found {
			flags = append(flags, arguments("--"+flag+"=", value)...)
		}
	}
	flags = append(flags, factsOf(values)...)
	name := fullName(values)
	flags = append(flags, "--webhook-configuration="+name, "--workload-webhook-key-secret="+usual+"/"+name+"-workload-webhook")
	return append(flags, arguments("", values["extraArgs"])...), nil
}

// factsOf returns the flags for the facts in the values.
func factsOf(values map[string]any) (flags []string) {
	facts, _ := values["facts"].([]any)
	for _, fact := range facts {
		f, ok := fact.(map[string]any)
		mapped, _ := f["values"].(map[string]any)
		switch {
		case f["presence"] == true || len(mapped) > 0:
			text, _ := json.Marshal(f) // it comes from JSON
			flags = append(flags, "--node-fact="+string(text))
		case ok:
			flags = append(flags, fmt.Sprintf("--node-fact=%v.%v:%v=%v", f["kind"], f["group"], f["fieldPath"], f["label"]))
		}
	}
	if values["zoneFromFailureDomain"] == true {
		flags = append(flags, "--node-fact=Machine.cluster.x-k8s.io:spec.failureDomain=topology.kubernetes.io/zone")
	}
	return flags
}

// valid reports values that the chart's schema refuses, in the words of Helm.
func valid(files []string) error {
	defaults, err := yaml.YAMLToJSON(chart.Values)
	if err != nil {
		return fmt.Errorf("reading the chart's values: %w", err)
	}
	values, err := merged(defaults, files)
	if err != nil {
		return err
	}
	return util.ValidateAgainstSingleSchema(values, chart.Schema)
}

// merged merges files into values as Helm does, by JSON merge patches. Numbers keep their notation.
func merged(all []byte, files []string) (values map[string]any, err error) {
	for _, file := range files {
		raw, err := os.ReadFile(file) //nolint:gosec // the user names it
		if err == nil {
			raw, err = yaml.YAMLToJSON(raw)
		}
		if err == nil && string(raw) != "null" {
			all, err = jsonpatch.MergePatch(all, raw)
		}
		if err != nil {
			return nil, fmt.Errorf("--values %s: %w", file, err)
		}
	}
	decoder := json.NewDecoder(strings.NewReader(string(all)))
	decoder.UseNumber()
	return values, decoder.Decode(&values)
}

// arguments returns a flag for each item of a list, or a flag for a single value.
func arguments(prefix string, value any) (flags []string) {
	list, isList := value.([]any)
	if !isList && value != nil {
		list = []any{value}
	}
	if isList && len(list) == 0 && prefix != "" { // an empty list is not the default of every flag
		return []string{prefix}
	}
	for _, item := range list {
		flags = append(flags, prefix+fmt.Sprint(item))
	}
	return flags
}

// fullName returns the name that the chart gives all objects of a release named heirloom.
func fullName(values map[string]any) string {
	if full, _ := values["fullnameOverride"].(string); full != "" {
		return full
	}
	name, _ := values["nameOverride"].(string)
	if name == "" || strings.Contains(heirloom, name) {
		return heirloom
	}
	return heirloom + "-" + name
}
