// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// flagsOf says which values of the chart are which flags of the server.
func flagsOf() []struct{ value, flag string } {
	return []struct{ value, flag string }{
		{"namespace", "namespace"},
		{"watchFilter", "watch-filter"},
		{"syncPeriod", "sync-period"},
		{"noExecuteRate", "no-execute-rate"},
		{"additionalSyncMachineLabels", "additional-sync-machine-labels"},
		{"additionalSyncMachineAnnotations", "additional-sync-machine-annotations"},
		{"additionalProviderGroups", "additional-provider-groups"},
		{"managementCluster", "management-cluster"},
		{"clusterAPITaintPropagation", "cluster-api-taint-propagation"},
		{"leaderElection.enabled", "leader-elect"},
		{"workloadClusters.admission", "workload-admission"},
		{"workloadClusters.webhookURL", "workload-webhook-url"},
		{"workloadClusters.concurrency", "clustercache-concurrency"},
		{"workloadClusters.clientQPS", "clustercache-client-qps"},
		{"workloadClusters.clientBurst", "clustercache-client-burst"},
	}
}

// fromValues returns the flags that the chart would give the server for these values, as far as they matter to the plugin.
func fromValues(files []string) ([]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	values := map[string]any{}
	for _, file := range files {
		over, err := readValues(file)
		if err != nil {
			return nil, fmt.Errorf("--values %s: %w", file, err)
		}
		merge(values, over)
	}
	// The chart elects a leader unless told otherwise.
	flags := []string{"--leader-elect=true"}
	for _, f := range flagsOf() {
		value, found, err := unstructured.NestedFieldNoCopy(values, strings.Split(f.value, ".")...)
		if err != nil {
			return nil, fmt.Errorf("--values: %s: %w", f.value, err)
		}
		if found {
			flags = append(flags, arguments("--"+f.flag+"=", value)...)
		}
	}
	name := fullName(values)
	flags = append(flags, "--webhook-configuration="+name, "--workload-webhook-key-secret="+usual+"/"+name+"-workload-webhook")
	return append(flags, arguments("", values["extraArgs"])...), nil
}

// readValues reads a file. Numbers stay as they are written.
func readValues(file string) (map[string]any, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // it is the user's
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	err = yaml.Unmarshal(raw, &values, func(d *json.Decoder) *json.Decoder {
		d.UseNumber()
		return d
	})
	return values, err
}

// merge sets values over others as Helm does: maps are merged, lists are replaced, and null stands for the default.
func merge(values, over map[string]any) {
	for name, value := range over {
		inner, isMap := value.(map[string]any)
		below, wasMap := values[name].(map[string]any)
		switch {
		case value == nil:
			delete(values, name)
		case isMap && wasMap:
			merge(below, inner)
		case isMap:
			below = map[string]any{}
			merge(below, inner)
			values[name] = below
		default:
			values[name] = value
		}
	}
}

// arguments returns a flag for each item of a list, or one.
func arguments(prefix string, value any) []string {
	list, isList := value.([]any)
	if !isList && value != nil {
		list = []any{value}
	}
	var flags []string
	for _, item := range list {
		flags = append(flags, prefix+fmt.Sprint(item))
	}
	return flags
}

// fullName is the name that the chart gives all objects of a release named heirloom.
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
