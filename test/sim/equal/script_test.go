// SPDX-License-Identifier: Apache-2.0

package equal

import (
	"fmt"
	"slices"
)

// last is the name of the objects that the script creates at its end: a watch is complete when it has sent its last object.
const last = "zz-last"

var (
	// watches are open during the script.
	watches = []string{
		"machines?watch=true", "machines?watch=true&labelSelector=team%3Da", "machines?watch=true&partial=true", "nodes?watch=true", "things?watch=true",
		"configmaps?watch=true&labelSelector=team",
	}
	// lateWatches are opened at the end, after the history has expired.
	lateWatches = []string{
		"machines?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"nodes?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=team",
		"things?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&partial=true",
		"machines?watch=true&resourceVersion=1", "machines?watch=true&sendInitialEvents=true",
	}
)

// machine returns the YAML of a Machine with these further fields in its metadata and in its spec.
func machine(name, metadata, spec string) string {
	return fmt.Sprintf("{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: %s, %s}, spec: {clusterName: c, bootstrap: {dataSecretName: s}, "+
		"infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: FakeMachine, name: m}, %s}}", name, metadata, spec)
}

// partly returns the YAML of a Machine without the required fields, for an applier with few fields.
func partly(name, metadata, spec string) string {
	return fmt.Sprintf("{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: %s, %s}%s}", name, metadata, in("spec", spec))
}

// in returns a field, or "" if its content is empty.
func in(field, content string) string {
	if content == "" {
		return ""
	}
	return fmt.Sprintf(", %s: {%s}", field, content)
}

func node(name, metadata, spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s, %s}%s}", name, metadata, in("spec", spec))
}

func thing(name, metadata, spec string) string {
	return fmt.Sprintf("{apiVersion: example.com/v1, kind: Thing, metadata: {name: %s, %s}%s}", name, metadata, in("spec", spec))
}

func configMap(name, metadata, data string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, %s}, data: {%s}}", name, metadata, data)
}

func script() []step {
	var updaters []step // more updaters than managedFields keep
	for i := range 13 {
		updaters = append(updaters, step{
			name: fmt.Sprint("updater ", i), do: fmt.Sprintf("PATCH machines/pruned?fieldManager=u%02d", i), as: "merge", body: fmt.Sprintf("{metadata: {annotations: {a%d: b}}}", i),
		})
	}
	return slices.Concat(writes, updaters, applies, statuses, deletions, schemas, nodes, kubelets, configurations, admissions, heirlooms, reads, ends)
}

var writes = []step{
	{name: "create", do: "POST machines", body: machine("m1", "labels: {team: a}", "")},
	{name: "create again", do: "POST machines", body: machine("m1", "", ""), code: 409},
	{name: "create, by another field manager", do: "POST machines?fieldManager=someone", body: machine("m2", "annotations: {a: b}", "version: v1.36.0")},
	{name: "create with a generated name", do: "POST machines", body: machine("''", "generateName: gen-, labels: {team: b}", "")},
	{name: "create without a name", do: "POST machines", body: machine("''", "", ""), code: 422},
	{name: "create with a resourceVersion", do: "POST machines", body: machine("m3", "resourceVersion: '5'", ""), code: 500},
	{name: "create with a UID of its own", do: "POST machines", body: machine("m3", "uid: mine, generation: 7, creationTimestamp: '2020-01-01T00:00:00Z'", "")},
	{name: "create in another namespace than the path's", do: "POST machines", body: machine("m4", "namespace: other", ""), code: 400},
	{name: "create in a namespace that is not there", do: "POST /apis/cluster.x-k8s.io/v1beta2/namespaces/none/machines", body: machine("m4", "", ""), code: 404},
	{name: "create of another kind", do: "POST machines", body: thing("m4", "", ""), code: 400},
	{name: "create without a required field", do: "POST machines", body: partly("m4", "", "clusterName: c"), code: 422},
	{name: "create with a name that is none", do: "POST machines", body: machine("No_Name", "", ""), code: 422},
	{name: "create in a dry run", do: "POST machines?dryRun=All", body: machine("dry", "", "")},
	{name: "what a dry run has not created", do: "GET machines/dry", code: 404},
	{name: "create with a list that has a key twice", do: "POST machines", code: 422, body: machine("m4", "", "taints: [{key: a, effect: NoSchedule, propagation: Always}, {key: a, effect: NoSchedule, propagation: OnInitialization}]")},
	{name: "create with a label that is none", do: "POST machines", code: 422, body: machine("m4", "labels: {'a b': c, d: 'e f'}, annotations: {'g h': i}", "")},
	{name: "create with a number for a string", do: "POST machines", code: 422, body: machine("m4", "", "version: 5")},
	{name: "create with a label that is a number", do: "POST machines", code: 400, body: machine("m4", "labels: {a: 5}", "")},
	{name: "create with an unknown field", do: "POST machines", body: machine("pruned", "", "nobody: knows")},
	{name: "create with an unknown field, strictly", do: "POST machines?fieldValidation=Strict", code: 400, body: machine("m4", "", "nobody: knows")},
	{name: "create with an unknown field, with a warning", do: "POST machines?fieldValidation=Warn", body: machine("warned", "foo: bar", "nobody: knows")},
	{name: "create by JSON that is none", do: "POST machines", code: 400, body: "[]"},
	{name: "put", do: "PUT machines/m1", body: machine("m1", "resourceVersion: '$rv(m1)', labels: {team: a, more: b}", "")},
	{name: "put again", do: "PUT machines/m1", noop: true, later: true, body: machine("m1", "resourceVersion: '$rv(m1)', labels: {team: a, more: b}", "")},
	{name: "put again by another", do: "PUT machines/m1?fieldManager=another", noop: true, body: machine("m1", "resourceVersion: '$rv(m1)', labels: {team: a, more: b}", "")},
	{name: "put with a stale resourceVersion", do: "PUT machines/m1", code: 409, body: machine("m1", "resourceVersion: '$first(m1)'", "")},
	{name: "put without a resourceVersion", do: "PUT machines/m1", code: 422, body: machine("m1", "labels: {team: a}", "")},
	{name: "put with another UID", do: "PUT machines/m1", code: 409, body: machine("m1", "resourceVersion: '$rv(m1)', uid: 00000000-0000-0000-0000-000000000000", "")},
	{name: "put with another name", do: "PUT machines/m1", code: 400, body: machine("m2", "resourceVersion: '$rv(m1)'", "")},
	{name: "put of what is not there", do: "PUT machines/none", code: 404, body: machine("none", "resourceVersion: '$rv(m1)'", "")},
	{name: "put without managedFields", do: "PUT machines/m2", body: machine("m2", "resourceVersion: '$rv(m2)', managedFields: [{}]", "version: v1.36.1")},
	{name: "put by several managers, later", do: "PUT machines/m2?fieldManager=another", later: true, body: machine("m2", "resourceVersion: '$rv(m2)', annotations: {c: d}", "version: v1.36.2")},
	{name: "merge patch", do: "PATCH machines/m1", as: "merge", body: "{metadata: {annotations: {a: b}}, spec: {version: v1.36.0}}"},
	{name: "merge patch again", do: "PATCH machines/m1", as: "merge", noop: true, later: true, body: "{metadata: {annotations: {a: b}}, spec: {version: v1.36.0}}"},
	{name: "merge patch again by another", do: "PATCH machines/m1?fieldManager=another", as: "merge", noop: true, body: "{metadata: {annotations: {a: b}}}"},
	{name: "merge patch of nothing", do: "PATCH machines/m1", as: "merge", noop: true, body: "{}"},
	{name: "merge patch by another", do: "PATCH machines/m1?fieldManager=another", as: "merge", body: "{metadata: {annotations: {a: c, d: null}}, spec: {version: null}}"},
	{name: "merge patch with a stale resourceVersion", do: "PATCH machines/m1", as: "merge", code: 409, body: "{metadata: {resourceVersion: '$first(m1)', annotations: {a: e}}}"},
	{name: "merge patch with the resourceVersion", do: "PATCH machines/m1", as: "merge", body: "{metadata: {resourceVersion: '$rv(m1)', annotations: {a: e}}}"},
	{name: "merge patch with another UID", do: "PATCH machines/m1", as: "merge", code: 422, body: "{metadata: {uid: 00000000-0000-0000-0000-000000000000}}"},
	{name: "merge patch of a name", do: "PATCH machines/m1", as: "merge", code: 400, body: "{metadata: {name: other}}"},
	{name: "merge patch of a creation time", do: "PATCH machines/m1", as: "merge", noop: true, body: "{metadata: {creationTimestamp: null, generation: 9}}"},
	{name: "merge patch of what is not there", do: "PATCH machines/none", as: "merge", code: 404, body: "{metadata: {annotations: {a: e}}}"},
	{name: "merge patch to what is not valid", do: "PATCH machines/m1", as: "merge", code: 422, body: "{spec: {clusterName: ''}, metadata: {labels: {a: '-'}}}"},
	{name: "merge patch in a dry run", do: "PATCH machines/m1?dryRun=All", as: "merge", body: "{metadata: {annotations: {dry: run}}}"},
	{name: "merge patch that is none", do: "PATCH machines/m1", as: "merge", code: 400, body: "[1]"},
	{name: "JSON patch", do: "PATCH machines/m1", as: "json", body: "[{op: add, path: /metadata/annotations/json, value: patch}, {op: remove, path: /metadata/annotations/a}]"},
	{name: "JSON patch whose test holds", do: "PATCH machines/m1", as: "json", body: "[{op: test, path: /metadata/annotations/json, value: patch}, {op: replace, path: /metadata/annotations/json, value: again}]"},
	{name: "JSON patch whose test fails", do: "PATCH machines/m1", as: "json", code: 422, body: "[{op: test, path: /metadata/annotations/json, value: patch}]"},
	{name: "JSON patch of what is not there", do: "PATCH machines/m1", as: "json", code: 422, body: "[{op: remove, path: /metadata/annotations/none}]"},
	{name: "JSON patch that is none", do: "PATCH machines/m1", as: "json", code: 400, body: "{a: b}"},
	{name: "strategic merge patch of a custom resource", do: "PATCH machines/m1", as: "strategic", code: 415, body: "{metadata: {annotations: {a: b}}}"},
	{name: "strategic merge patch", do: "PATCH configmaps/none", as: "strategic", code: 404, body: "{data: {a: b}}"},
	{name: "the label goes", do: "PATCH machines/m1", as: "merge", body: "{metadata: {labels: {team: null}}}"},
	{name: "the label comes back", do: "PATCH machines/m1", as: "merge", body: "{metadata: {labels: {team: a}}}"},
	{name: "managedFields are removed", do: "PATCH machines/m2", as: "merge", body: "{metadata: {managedFields: [{}]}}"},
	{name: "a write after that", do: "PATCH machines/m2", as: "merge", body: "{metadata: {annotations: {after: that}}}"},
	{name: "apply after that", do: "PATCH machines/m2?fieldManager=after", as: "apply", body: partly("m2", "annotations: {applied: that}", "")},
}

var applies = []step{
	{name: "apply creates", do: "PATCH machines/applied?fieldManager=a", as: "apply", code: 201, body: machine("applied", "labels: {a: '1'}", "taints: [{key: a, effect: NoSchedule, propagation: Always}]")},
	{name: "apply again", do: "PATCH machines/applied?fieldManager=a", as: "apply", noop: true, later: true, body: machine("applied", "labels: {a: '1'}", "taints: [{key: a, effect: NoSchedule, propagation: Always}]")},
	{name: "apply without a manager", do: "PATCH machines/applied", as: "apply", code: 422, body: partly("applied", "", "")},
	{name: "apply by a second", do: "PATCH machines/applied?fieldManager=b", as: "apply", later: true, body: partly("applied", "labels: {b: '1'}", "taints: [{key: b, effect: NoSchedule, propagation: Always, value: b}]")},
	{name: "apply by the second again", do: "PATCH machines/applied?fieldManager=b", as: "apply", noop: true, later: true, body: partly("applied", "labels: {b: '1'}", "taints: [{key: b, effect: NoSchedule, propagation: Always, value: b}]")},
	{name: "apply of the same element", do: "PATCH machines/applied?fieldManager=c", as: "apply", body: partly("applied", "", "taints: [{key: b, effect: NoSchedule, propagation: Always, value: b}]")},
	{name: "apply in conflict", do: "PATCH machines/applied?fieldManager=c", as: "apply", code: 409, body: partly("applied", "labels: {a: '2', b: '2'}", "taints: [{key: b, effect: NoSchedule, propagation: OnInitialization, value: c}]")},
	{name: "apply in conflict, forced", do: "PATCH machines/applied?fieldManager=c&force=true", as: "apply", body: partly("applied", "labels: {a: '2'}", "taints: [{key: b, effect: NoSchedule, propagation: Always, value: c}]")},
	{name: "one of two gives an element up", do: "PATCH machines/applied?fieldManager=b", as: "apply", body: partly("applied", "labels: {b: '1'}", "")},
	{name: "the other gives it up, too", do: "PATCH machines/applied?fieldManager=c", as: "apply", body: partly("applied", "", "")},
	{name: "an applier of nothing", do: "PATCH machines/applied?fieldManager=c", as: "apply", noop: true, body: partly("applied", "", "")},
	{name: "an update takes a field", do: "PATCH machines/applied?fieldManager=updater", as: "merge", body: "{metadata: {labels: {b: '2'}}}"},
	{name: "apply in conflict with an update", do: "PATCH machines/applied?fieldManager=b", as: "apply", code: 409, body: partly("applied", "labels: {b: '1'}", "")},
	{name: "apply of what an update has", do: "PATCH machines/applied?fieldManager=b", as: "apply", body: partly("applied", "labels: {b: '2'}", "")},
	{name: "an update removes an element", do: "PATCH machines/applied?fieldManager=updater", as: "merge", body: "{spec: {taints: null}}"},
	{name: "apply puts it back", do: "PATCH machines/applied?fieldManager=a&force=true", as: "apply", body: machine("applied", "labels: {a: '1'}", "taints: [{key: a, effect: NoSchedule, propagation: Always}]")},
	{name: "apply with an element twice", do: "PATCH machines/applied?fieldManager=d", as: "apply", code: 500, body: partly("applied", "", "taints: [{key: x, effect: NoSchedule, propagation: Always}, {key: x, effect: NoSchedule, propagation: Always}]")},
	{name: "apply without a key", do: "PATCH machines/applied?fieldManager=d", as: "apply", code: 422, body: partly("applied", "", "taints: [{key: x, propagation: Always}]")},
	{name: "apply with managedFields", do: "PATCH machines/applied?fieldManager=d", as: "apply", code: 400, body: partly("applied", "managedFields: [{manager: x}]", "")},
	{name: "apply of an unknown field", do: "PATCH machines/applied?fieldManager=d", as: "apply", code: 500, body: partly("applied", "", "nobody: knows")},
	{name: "apply with a resourceVersion that is stale", do: "PATCH machines/applied?fieldManager=d", as: "apply", code: 409, body: partly("applied", "resourceVersion: '$first(applied)', labels: {d: d}", "")},
	{name: "apply with a UID to what is not there", do: "PATCH machines/none?fieldManager=d", as: "apply", code: 409, body: machine("none", "uid: $uid(m1)", "")},
	{name: "apply that is not valid", do: "PATCH machines/applied?fieldManager=d", as: "apply", code: 422, body: partly("applied", "labels: {d: 'd d'}", "")},
	{name: "apply in a dry run", do: "PATCH machines/applied?fieldManager=d&dryRun=All", as: "apply", body: partly("applied", "labels: {d: d}", "")},
	{name: "apply of another name", do: "PATCH machines/applied?fieldManager=d", as: "apply", code: 400, body: partly("another", "", "")},
	{name: "apply by the name of an updater", do: "PATCH machines/applied?fieldManager=updater", as: "apply", body: partly("applied", "labels: {b: '2'}", "")},
	{name: "apply of finalizers and owners", do: "PATCH machines/applied?fieldManager=owners", as: "apply", body: partly("applied", "finalizers: [a.example.com/x], ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: o, uid: $uid(m1)}]", "")},
	{name: "another owner", do: "PATCH machines/applied?fieldManager=owners2", as: "apply", body: partly("applied", "finalizers: [a.example.com/y], ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: p, uid: $uid(m2)}]", "")},
	{name: "the first gives up", do: "PATCH machines/applied?fieldManager=owners", as: "apply", body: partly("applied", "", "")},
	{name: "two controllers", do: "PATCH machines/applied", as: "merge", code: 422, body: "{metadata: {ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: a, controller: true}, {apiVersion: v1, kind: B, name: b, uid: b, controller: true}]}}"},
	{name: "apply to a built-in kind", do: "PATCH configmaps/applied?fieldManager=a", as: "apply", code: 201, body: configMap("applied", "labels: {team: a}", "a: b")},
	{name: "apply to a built-in kind again", do: "PATCH configmaps/applied?fieldManager=a", as: "apply", noop: true, later: true, body: configMap("applied", "labels: {team: a}", "a: b")},
	{name: "apply to a built-in kind in conflict", do: "PATCH configmaps/applied?fieldManager=b", as: "apply", code: 409, body: configMap("applied", "", "a: c")},
	{name: "apply of an unknown field of a built-in kind", do: "PATCH configmaps/applied?fieldManager=b", as: "apply", code: 500, body: "{apiVersion: v1, kind: ConfigMap, nobody: knows}"},
	{name: "strategic merge patch of a built-in kind", do: "PATCH configmaps/applied", as: "strategic", body: "{data: {c: d, $patch: replace}, metadata: {annotations: {e: f}}}"},
}

var statuses = []step{
	{name: "create with a status", do: "POST machines", body: "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: s}, spec: {clusterName: c, bootstrap: {dataSecretName: s}, infrastructureRef: {apiGroup: g.io, kind: K, name: m}}, status: {phase: Running}}"},
	{name: "status", do: "PATCH machines/s/status?fieldManager=status", as: "merge", body: "{status: {phase: Running, conditions: [{type: Ready, status: 'True', reason: R, message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}]}}"},
	{name: "status again", do: "PATCH machines/s/status?fieldManager=status", as: "merge", noop: true, later: true, body: "{status: {phase: Running}}"},
	{name: "a spec by way of the status", do: "PATCH machines/s/status", as: "merge", noop: true, body: "{spec: {version: v1.36.0}}"},
	{name: "labels by way of the status", do: "PATCH machines/s/status", as: "merge", body: "{metadata: {labels: {by: status}, annotations: {by: status}}, status: {phase: Failed}}"},
	{name: "a status by way of the object", do: "PATCH machines/s", as: "merge", noop: true, body: "{status: {phase: Running}}"},
	{name: "both by way of the object", do: "PATCH machines/s", as: "merge", body: "{spec: {version: v1.36.0}, status: {phase: Running}}"},
	{name: "status that is not valid", do: "PATCH machines/s/status", as: "merge", code: 422, body: "{status: {phase: Strange, conditions: [{type: Ready}]}}"},
	{name: "put of a status", do: "PUT machines/s/status", body: "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: s, resourceVersion: '$rv(s)'}, spec: {clusterName: d, bootstrap: {dataSecretName: s}, infrastructureRef: {apiGroup: g.io, kind: K, name: m}}, status: {phase: Running}}"},
	{name: "apply of a status", do: "PATCH machines/s/status?fieldManager=applier&force=true", as: "apply", body: "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, status: {phase: Running, conditions: [{type: Ready, status: 'False', reason: R, message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}]}}"},
	{name: "apply of a status and a label", do: "PATCH machines/s/status?fieldManager=applier2", as: "apply", body: "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {labels: {a: b}}, spec: {version: v1.37.0}, status: {conditions: [{type: Other, status: 'False', reason: R, message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}]}}"},
	{name: "get of a status", do: "GET machines/s/status"},
	{name: "a status of what has none", do: "PATCH things/x/status", as: "merge", code: 404, body: "{}"},
	{name: "a generation does not count labels", do: "PATCH machines/s", as: "merge", body: "{metadata: {labels: {c: d}, finalizers: [a.example.com/f]}}"},
	{name: "a generation counts the spec", do: "PATCH machines/s", as: "merge", body: "{spec: {readinessGates: [{conditionType: A}]}}"},
	{name: "version v1beta1, which is converted by no webhook", do: "GET /apis/cluster.x-k8s.io/v1beta1/namespaces/default/machines/s"},
}

var deletions = []step{
	{name: "a finalizer that is none", do: "PATCH machines/m3", as: "merge", code: 422, body: "{metadata: {finalizers: ['a b']}}"},
	{name: "finalizers", do: "PATCH machines/m3", as: "merge", body: "{metadata: {finalizers: [a.example.com/f, a.example.com/g]}}"},
	{name: "delete with another UID", do: "DELETE machines/m3", code: 409, body: "{apiVersion: v1, kind: DeleteOptions, preconditions: {uid: 00000000-0000-0000-0000-000000000000}}"},
	{name: "delete with another resourceVersion", do: "DELETE machines/m3", code: 409, body: "{apiVersion: v1, kind: DeleteOptions, preconditions: {resourceVersion: '1'}}"},
	{name: "delete in a dry run", do: "DELETE machines/m3?dryRun=All"},
	{name: "delete with finalizers", do: "DELETE machines/m3", body: "{apiVersion: v1, kind: DeleteOptions, preconditions: {uid: $uid(m3)}}"},
	{name: "delete again", do: "DELETE machines/m3", noop: true},
	{name: "a further finalizer", do: "PATCH machines/m3", as: "merge", code: 422, body: "{metadata: {finalizers: [a.example.com/f, a.example.com/g, a.example.com/h]}}"},
	{name: "a label while it is deleted", do: "PATCH machines/m3", as: "merge", body: "{metadata: {labels: {a: b}}, spec: {version: v1.36.0}}"},
	{name: "the deletion cannot be taken back", do: "PATCH machines/m3", as: "merge", noop: true, body: "{metadata: {deletionTimestamp: null, deletionGracePeriodSeconds: null}}"},
	{name: "apply while it is deleted", do: "PATCH machines/m3?fieldManager=a", as: "apply", body: partly("m3", "labels: {c: d}", "")},
	{name: "one finalizer less", do: "PATCH machines/m3", as: "merge", body: "{metadata: {finalizers: [a.example.com/g]}}"},
	{name: "the last finalizer, in a dry run", do: "PATCH machines/m3?dryRun=All", as: "merge", body: "{metadata: {finalizers: null}}"},
	{name: "the last finalizer", do: "PATCH machines/m3", as: "merge", body: "{metadata: {finalizers: null}}"},
	{name: "gone", do: "GET machines/m3", code: 404},
	{name: "delete what is gone", do: "DELETE machines/m3", code: 404},
	{name: "patch what is gone", do: "PATCH machines/m3", as: "merge", code: 404, body: "{metadata: {uid: $uid(m3)}}"},
	{name: "delete", do: "DELETE machines/m2", body: "{apiVersion: v1, kind: DeleteOptions, propagationPolicy: Background, preconditions: {resourceVersion: '$rv(m2)'}}"},
	{name: "delete in the foreground", do: "DELETE machines/pruned?propagationPolicy=Foreground"},
	{name: "delete of orphans", do: "DELETE machines/warned?propagationPolicy=Orphan"},
	{name: "a deletionTimestamp of one's own", do: "POST machines", body: machine("ghost", "deletionTimestamp: '2026-01-02T03:04:05Z', finalizers: [a.example.com/f]", "")},
	{name: "create anew", do: "POST machines", body: machine("m2", "", "")},
	{name: "a ConfigMap", do: "POST configmaps", body: configMap("c", "labels: {team: c}, finalizers: [a.example.com/f]", "a: b")},
	{name: "put a ConfigMap without a resourceVersion", do: "PUT configmaps/c", body: configMap("c", "labels: {team: c}, finalizers: [a.example.com/f]", "a: c")},
	{name: "put a ConfigMap again", do: "PUT configmaps/c", noop: true, later: true, body: configMap("c", "labels: {team: c}, finalizers: [a.example.com/f]", "a: c")},
	{name: "delete a ConfigMap", do: "DELETE configmaps/c"},
	{name: "put a ConfigMap without its finalizer", do: "PUT configmaps/c", body: configMap("c", "labels: {team: c}", "a: c")},
	{name: "a ConfigMap that is gone", do: "GET configmaps/c", code: 404},
	{name: "another ConfigMap", do: "POST configmaps", body: configMap("d", "labels: {team: d}", "a: b")},
	{name: "delete a ConfigMap at once", do: "DELETE configmaps/d?gracePeriodSeconds=0"},
	{name: "a namespace", do: "POST namespaces", body: "{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere, labels: {team: a}}}"},
	{name: "a Secret", do: "POST secrets", body: "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {value: abc}, data: {more: YWJj}}"},
	{name: "put a Secret", do: "PUT secrets/s", body: "{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {a: b}}, type: Opaque, data: {value: YWJj}}"},
	{name: "a Lease", do: "POST leases", body: "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}, spec: {holderIdentity: me, leaseDurationSeconds: 15, renewTime: '2026-01-02T03:04:05.000006Z'}}"},
	{name: "put a Lease with a stale resourceVersion", do: "PUT leases/l", code: 409, body: "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l, resourceVersion: '1'}, spec: {holderIdentity: you}}"},
	{name: "put a Lease", do: "PUT leases/l", body: "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l, resourceVersion: '$rv(l)'}, spec: {holderIdentity: you, leaseDurationSeconds: 15}}"},
	{name: "an Event", do: "POST events", body: "{apiVersion: v1, kind: Event, metadata: {name: e.1}, involvedObject: {kind: Machine, namespace: default, name: m1}, reason: R, message: m, type: Normal, count: 1}"},
	{name: "an Event counts", do: "PATCH events/e.1", as: "strategic", body: "{count: 2, lastTimestamp: '2026-01-02T03:04:05Z'}"},
}
