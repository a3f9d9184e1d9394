// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The API groups of Cluster API's providers. Operators may add to those of infrastructure and bootstrap.
const (
	ControlPlaneGroup   = "controlplane.cluster.x-k8s.io"
	InfrastructureGroup = "infrastructure.cluster.x-k8s.io"
	BootstrapGroup      = "bootstrap.cluster.x-k8s.io"
)

// Layout says where an object has what it can inherit. It differs between kinds and, for control planes, between providers.
type Layout struct {
	// Version is the version of the object's API. An entry of managed fields in another version may have other paths.
	Version string
	// Top is the object itself; Template is what it declares for Machines, if it does.
	Top, Template Paths
}

// Paths lead to the parts that inherit, as field names. What the object does not have is nil.
type Paths struct {
	Metadata, Taints []string
	Fields           [fields][]string
	// Durations says that timeouts are durations such as "1m30s", as in the v1beta1 contract, and not seconds.
	Durations bool
}

// The layouts of Cluster API's own kinds: of a Machine, and of a MachineDeployment, MachineSet or MachinePool.
//
//nolint:gochecknoglobals // nothing changes them
var (
	MachineLayout = Layout{Version: clusterv1.GroupVersion.Version, Top: pathsIn([]string{"metadata"}, []string{"spec"})}
	WorkersLayout = Layout{
		Version: clusterv1.GroupVersion.Version, Top: Paths{Metadata: []string{"metadata"}},
		Template: pathsIn([]string{"spec", "template", "metadata"}, []string{"spec", "template", "spec"}),
	}
)

// metadataLayout is that of an object of which only metadata inherits: an InfraMachine or a BootstrapConfig.
func metadataLayout(version string) Layout {
	return Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}}
}

// ControlPlaneLayout is that of a provider's control plane. Cluster API's contract has two forms of it: in v1beta2 a
// Machine's fields are in spec.machineTemplate.spec, in v1beta1 beside spec.machineTemplate.metadata; all are optional.
// has reports whether the schema of the object's kind has a field.
func ControlPlaneLayout(version string, has func(path ...string) bool) Layout {
	template := []string{"spec", "machineTemplate"}
	newer, older := pathsIn(below(template, "metadata"), below(template, "spec")), pathsIn(nil, template)
	at := Paths{
		Metadata: present(has, newer.Metadata), Taints: present(has, newer.Taints, older.Taints), Durations: true,
	}
	for f, row := range fieldTable {
		if row.duration != "" && present(has, newer.Fields[f]) != nil {
			at.Durations = false // the two are not mixed, since their units differ
		}
	}
	for f, row := range fieldTable {
		switch {
		case row.ofWorkers:
		case row.duration == "":
			at.Fields[f] = present(has, newer.Fields[f], older.Fields[f])
		case at.Durations:
			at.Fields[f] = present(has, below(template, row.duration))
		default:
			at.Fields[f] = present(has, newer.Fields[f])
		}
	}
	return Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}, Template: at}
}

// present returns the first of the paths that there is.
func present(has func(path ...string) bool, paths ...[]string) []string {
	for _, path := range paths {
		if has(path...) {
			return path
		}
	}
	return nil
}

// pathsIn returns the paths of what Machines inherit: metadata, and the fields in spec.
func pathsIn(metadata, spec []string) Paths {
	paths := Paths{Metadata: metadata, Taints: below(spec, "taints")}
	for f, row := range fieldTable {
		paths.Fields[f] = below(spec, strings.Split(row.path, ".")...)
	}
	return paths
}

func below(path []string, names ...string) []string {
	return slices.Concat(path, names)
}

// Value returns so many seconds as a field has them.
func (p Paths) Value(f Field, seconds int32) any {
	if p.Durations && fieldTable[f].duration != "" {
		return (time.Duration(seconds) * time.Second).String()
	}
	return int64(seconds)
}
