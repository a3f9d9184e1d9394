// SPDX-License-Identifier: Apache-2.0

package equal

import (
	"fmt"
	"strings"
)

// configurations creates webhooks for objects that have the label hook with the configuration's name.
var configurations = []step{
	hook("label", "label"),
	hook("entry", "entry, reinvocationPolicy: IfNeeded"),
	hook("again", "count, reinvocationPolicy: IfNeeded", "label"),
	hook("never", "count, reinvocationPolicy: Never", "label"),
	hook("fail", "away"),
	hook("ignore", "away, failurePolicy: Ignore", "label"),
	hook("error", "error"),
	hook("garbage", "garbage, failurePolicy: Ignore", "label"),
	hook("uid", "other"),
	hook("deny", "deny, failurePolicy: Ignore"),
	hook("warn", "warn"),
	hook("nopatch", "nopatch"), hook("nopatch-ignore", "nopatch, failurePolicy: Ignore"),
	hook("nowhere", "nowhere, failurePolicy: Ignore"), hook("broken", "broken, failurePolicy: Ignore"), hook("invalid", "invalid"), hook("unknown", "unknown"),
	hook("rename", "rename"), hook("bare", "bare"), hook("empty", "empty"), hook("wrong", "wrong"), hook("taint", "taint"), hook("node", "node"),
	hook("conditions", "label, matchConditions: [{name: new, expression: 'oldObject == null'}, {name: noted, expression: \"has(object.metadata.annotations) && 'note' in object.metadata.annotations\"}]"),
	hook("user", "label, matchConditions: [{name: other, expression: \"request.userInfo.username != 'admin'\"}, {name: dry, expression: '!request.dryRun'}]"),
	hook("conderr", "label, matchConditions: [{name: wrong, expression: \"object.metadata.annotations['none'] == ''\"}]"),
	hook("conderr-ignore", "label, failurePolicy: Ignore, matchConditions: [{name: wrong, expression: \"object.metadata.annotations['none'] == ''\"}]"),
	hook("elsewhere", "label, namespaceSelector: {matchLabels: {team: a}}"),
	hook("effects", "label, sideEffects: NoneOnDryRun"),
}

var admissions = []step{
	{name: "a webhook's label", do: "POST machines", body: machine("label", "labels: {hook: label}", "")},
	{name: "a webhook's label again", do: "PUT machines/label", noop: true, later: true, body: machine("label", "labels: {hook: label}, resourceVersion: '$rv(label)'", "")},
	{name: "a webhook's label is put back", do: "PATCH machines/label?fieldManager=b", as: "merge", noop: true, body: "{metadata: {labels: {added: null}}}"},
	{name: "a webhook's label beside a change", do: "PATCH machines/label?fieldManager=b", as: "merge", body: "{metadata: {labels: {added: null, more: x}}}"},
	{name: "apply beside a webhook", do: "PATCH machines/label?fieldManager=c", as: "apply", body: partly("label", "labels: {hook: label, c: d}", "")},
	{name: "apply beside a webhook again", do: "PATCH machines/label?fieldManager=c", as: "apply", noop: true, later: true, body: partly("label", "labels: {hook: label, c: d}", "")},
	{name: "apply creates beside a webhook", do: "PATCH machines/label2?fieldManager=c", as: "apply", code: 201, body: machine("label2", "labels: {hook: label}", "")},
	{name: "apply creates beside a webhook, again", do: "PATCH machines/label2?fieldManager=c", as: "apply", noop: true, later: true, body: machine("label2", "labels: {hook: label}", "")},
	{name: "status beside a webhook", do: "PATCH machines/label/status", as: "merge", body: "{status: {phase: Running}}"},
	{name: "a webhook in a dry run", do: "PATCH machines/label?dryRun=All", as: "merge", body: "{metadata: {labels: {dry: run}}}"},
	{name: "delete beside a webhook", do: "DELETE machines/label2"},
	{name: "a webhook's own entry", do: "POST machines", body: machine("entry", "labels: {hook: entry}", "")},
	{name: "its identical apply", do: "PATCH machines/entry?fieldManager=inheritor", as: "apply", noop: true, later: true, body: partly("entry", "labels: {inherited: 'yes'}", "")},
	{name: "a put beside a webhook's entry", do: "PUT machines/entry", noop: true, body: machine("entry", "labels: {hook: entry, inherited: 'yes'}, resourceVersion: '$rv(entry)'", "")},
	{name: "a patch beside a webhook's entry", do: "PATCH machines/entry?fieldManager=b", as: "merge", body: "{metadata: {labels: {b: c}}}"},
	{name: "a put takes a webhook's label away", do: "PUT machines/entry", body: machine("entry", "labels: {hook: entry}, resourceVersion: '$rv(entry)'", "")},
	{name: "apply creates beside a webhook's entry", do: "PATCH machines/entry2?fieldManager=a", as: "apply", code: 201, body: machine("entry2", "labels: {hook: entry}", "")},
	{name: "apply creates beside a webhook's entry, again", do: "PATCH machines/entry2?fieldManager=a", as: "apply", noop: true, later: true, body: machine("entry2", "labels: {hook: entry}", "")},
	{name: "its own apply gives up", do: "PATCH machines/entry2?fieldManager=inheritor", as: "apply", body: partly("entry2", "labels: {}", "")},
	{name: "an entry on a Node", do: "POST nodes", body: node("entry-node", "labels: {hook: entry, team: a}", "")},
	{name: "its identical apply on a Node", do: "PATCH nodes/entry-node?fieldManager=inheritor", as: "apply", noop: true, later: true, body: node("entry-node", "labels: {inherited: 'yes'}", "")},
	{name: "an entry in a Node's update", do: "PATCH nodes/n1?fieldManager=a", as: "merge", body: "{metadata: {labels: {hook: entry}}}"},
	{name: "the same update of the Node", do: "PATCH nodes/n1?fieldManager=a", as: "merge", noop: true, later: true, body: "{metadata: {labels: {hook: entry}}}"},
	{name: "a Node's status beside an entry", do: "PATCH nodes/n1/status?fieldManager=k", as: "strategic", body: "{status: {capacity: {cpu: '5'}}}"},
	{name: "reinvocation", do: "POST machines", body: machine("again", "labels: {hook: again}", "")},
	{name: "no reinvocation without a change", do: "PATCH machines/again", as: "merge", noop: true, body: "{}"},
	{name: "no reinvocation", do: "POST machines", body: machine("never", "labels: {hook: never}", "")},
	{name: "reinvocation on a Node", do: "POST nodes", body: node("again-node", "labels: {hook: again}", "")},
	{name: "unreachable", do: "POST machines", code: 500, body: machine("fail", "labels: {hook: fail}", "")},
	{name: "unreachable, ignored", do: "POST machines", body: machine("ignore", "labels: {hook: ignore}", "")},
	{name: "an answer with an error", do: "POST machines", code: 500, body: machine("error", "labels: {hook: error}", "")},
	{name: "an answer that is none, ignored", do: "POST machines", body: machine("garbage", "labels: {hook: garbage}", "")},
	{name: "an answer to another", do: "POST machines", code: 500, body: machine("uid", "labels: {hook: uid}", "")},
	{name: "denied", do: "POST machines", code: 418, body: machine("deny", "labels: {hook: deny}", "")},
	{name: "warned", do: "POST machines", body: machine("warn", "labels: {hook: warn}", "")},
	{name: "a patch that is none", do: "POST machines", code: 500, body: machine("nopatch", "labels: {hook: nopatch}", "")},
	{name: "a patch that is none, ignored", do: "POST machines", body: machine("nopatch", "labels: {hook: nopatch-ignore}", "")},
	{name: "a patch that cannot be applied", do: "POST machines", code: 500, body: machine("nowhere", "labels: {hook: nowhere}", "")},
	{name: "a patch that breaks a custom resource", do: "POST machines", code: 422, body: machine("broken", "labels: {hook: broken}", "")},
	{name: "a patch that breaks a Node", do: "POST nodes", code: 500, body: node("broken", "labels: {hook: broken}", "")},
	{name: "a patch to what is not valid", do: "POST machines", code: 422, body: machine("invalid", "labels: {hook: invalid}", "")},
	{name: "a patch of an unknown field", do: "POST machines", body: machine("unknown", "labels: {hook: unknown}", "")},
	{name: "a patch of an unknown field again", do: "PATCH machines/unknown", as: "merge", body: "{}"},
	{name: "a patch of the name", do: "POST machines", body: machine("rename", "labels: {hook: rename}", "")},
	{name: "no managedFields", do: "POST machines", body: machine("bare", "labels: {hook: bare}", "")},
	{name: "no annotations", do: "POST machines", body: machine("empty", "labels: {hook: empty}, annotations: {a: b}", "")},
	{name: "no annotations again, which is stored each time", do: "PATCH machines/empty", as: "merge", later: true, body: "{}"},
	{name: "no annotations without the webhook", do: "PATCH machines/empty", as: "merge", body: "{metadata: {labels: {hook: none}}}"},
	{name: "a change without annotations", do: "PATCH machines/empty", as: "merge", body: "{metadata: {labels: {hook: empty}, annotations: {c: d}}}"},
	{name: "no annotations on a Node", do: "POST nodes", body: node("empty", "labels: {hook: empty}, annotations: {a: b}", "")},
	{name: "wrong managedFields", do: "POST machines", body: machine("wrong", "labels: {hook: wrong}", "")},
	{name: "a webhook's taint", do: "POST machines", body: machine("taint", "labels: {hook: taint}", "taints: [{key: a, effect: NoSchedule, propagation: Always}]"), code: 422},
	{name: "a webhook's taint on a Node", do: "POST nodes", body: node("taint", "labels: {hook: taint}", "taints: [{key: a, effect: NoSchedule}]")},
	{name: "a webhook's taint for a kubelet", user: "node-a", do: "PATCH nodes/node-a", as: "merge", code: 403, body: "{metadata: {labels: {hook: taint}}}"},
	{name: "a webhook's label for a kubelet", user: "node-a", do: "PATCH nodes/node-a", as: "merge", code: 403, body: "{metadata: {labels: {hook: node}}}"},
	{name: "a webhook's label for an administrator", do: "PATCH nodes/node-b", as: "merge", body: "{metadata: {labels: {hook: node}}}"},
	{name: "a kubelet beside that label", user: "node-b", do: "PATCH nodes/node-b", as: "merge", body: "{metadata: {labels: {more: a}}}"},
	{name: "match conditions hold", do: "POST machines", body: machine("conditions", "labels: {hook: conditions}, annotations: {note: x}", "")},
	{name: "match conditions fail", do: "POST machines", body: machine("conditions2", "labels: {hook: conditions}", "")},
	{name: "a match condition on an update", do: "PATCH machines/conditions", as: "merge", body: "{metadata: {labels: {added: null}}}"},
	{name: "a match condition on a user", do: "POST machines", body: machine("user", "labels: {hook: user}", "")},
	{name: "a match condition in error", do: "POST machines", code: 403, body: machine("conderr", "labels: {hook: conderr}", "")},
	{name: "a match condition in error, ignored", do: "POST machines", body: machine("conderr", "labels: {hook: conderr-ignore}", "")},
	{name: "in another namespace", do: "POST machines", body: machine("elsewhere", "labels: {hook: elsewhere}", "")},
	{name: "in the selected namespace", do: "POST /apis/cluster.x-k8s.io/v1beta2/namespaces/elsewhere/machines", body: machine("selected", "labels: {hook: elsewhere}", "")},
	{name: "side effects in a dry run", do: "POST machines?dryRun=All", body: machine("effects", "labels: {hook: effects}", "")},
	{name: "a webhook at another version", do: "PATCH /apis/cluster.x-k8s.io/v1beta1/namespaces/default/machines/label?fieldManager=old", as: "merge", body: "{metadata: {labels: {old: x}}}"},
	{name: "a webhook goes", do: "DELETE mutatingwebhookconfigurations/label"},
}

const (
	policy = "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: p, labels: {a: b}}, spec: {failurePolicy: Ignore, reinvocationPolicy: IfNeeded, " +
		"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [nodes]}], objectSelector: {matchLabels: {none: at-all}}}, " +
		"matchConditions: [{name: c, expression: 'true'}], variables: [{name: v, expression: '1'}], paramKind: {apiVersion: v1, kind: ConfigMap}, " +
		`mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels/x', value: 'x'}]"}}]}}`
	binding = "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: p, labels: {a: b}}, " +
		"spec: {policyName: p, paramRef: {name: x, namespace: default, parameterNotFoundAction: Allow}}}"
	happened = "{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: h.1, namespace: default}, eventTime: '2026-01-02T03:04:05.000006Z', type: Normal, reason: R, action: A, note: text, " +
		"reportingController: heirloom, reportingInstance: heirloom-0, regarding: {apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, namespace: default, name: h}}"
	entryOf = `{manager: heirloom, operation: Apply, apiVersion: cluster.x-k8s.io/v1beta2, time: '2000-01-01T00:00:00Z', fieldsType: FieldsV1, fieldsV1: {'f:metadata': {'f:labels': {%s}}}}`
)

const eventsApart = "Events of the two groups are the same objects only in a real one; Heirloom and the world write and read those of events.k8s.io"

// heirlooms are requests like Heirloom's.
var heirlooms = []step{
	{name: "an heir", do: "POST machines", body: machine("h", "labels: {own: x}", "")},
	{name: "an heir inherits", do: "PATCH machines/h?fieldManager=heirloom&force=true", as: "apply", body: partly("h", "labels: {i: 'yes', j: 'yes'}", "deletion: {nodeDrainTimeoutSeconds: 5}, taints: [{key: a, effect: NoSchedule, propagation: Always}]")},
	{name: "the gate is asked", do: "PATCH machines/h?fieldManager=heirloom-probe&force=true&dryRun=All", as: "apply", body: partly("h", "", "taints: [{key: b, effect: NoSchedule, propagation: OnInitialization}]")},
	{name: "an heir gives a label up by patch", do: "PATCH machines/h?fieldManager=heirloom", as: "json", later: true, body: "[{op: add, path: /metadata/labels, value: {own: x, i: 'yes'}}, {op: replace, path: /metadata/managedFields/0, value: " +
		fmt.Sprintf(entryOf, "'f:i': {}") + "}, {op: replace, path: /metadata/resourceVersion, value: '$rv(h)'}]"},
	{name: "an heir gives a label up by a stale patch", do: "PATCH machines/h?fieldManager=heirloom", as: "json", code: 409, body: "[{op: add, path: /metadata/labels, value: {own: x}}, {op: replace, path: /metadata/resourceVersion, value: '$first(h)'}]"},
	{name: "an heir gives its entry up", do: "PATCH machines/h?fieldManager=heirloom", as: "json", body: "[{op: remove, path: /metadata/managedFields/0}, {op: replace, path: /metadata/resourceVersion, value: '$rv(h)'}]"},
	{name: "an heir adopts", do: "PATCH machines/h?fieldManager=heirloom", as: "json", body: "[{op: add, path: /metadata/managedFields/0, value: " + fmt.Sprintf(entryOf, "'f:i': {}, 'f:own': {}") + "}]"},
	{name: "an heir adopts wrongly placed", do: "PATCH machines/h?fieldManager=other", as: "json", body: "[{op: add, path: /metadata/managedFields/-, value: " + strings.ReplaceAll(fmt.Sprintf(entryOf, "'f:i': {}"), "heirloom", "zother") + "}]"},
	{name: "an heir's apply after that", do: "PATCH machines/h?fieldManager=heirloom&force=true", as: "apply", later: true, body: partly("h", "labels: {i: 'yes', own: x}", "")},
	{name: "an heir's apply again", do: "PATCH machines/h?fieldManager=heirloom&force=true", as: "apply", later: true, noop: true, body: partly("h", "labels: {i: 'yes', own: x}", "")},
	{name: "a Node inherits", do: "PATCH nodes/n1?fieldManager=heirloom", as: "merge", body: "{metadata: {resourceVersion: '$rv(n1)', labels: {i: 'yes'}, annotations: {heirloom.dev/inherited: x}}, spec: {taints: [{key: i, effect: NoSchedule}, {key: j, effect: NoExecute}]}}"},
	{name: "a Node inherits, too late", do: "PATCH nodes/n1?fieldManager=heirloom", as: "merge", code: 409, body: "{metadata: {resourceVersion: '$first(n1)', labels: {i: 'no'}}, spec: {taints: null}}"},
	{name: "a policy", do: "PATCH mutatingadmissionpolicies/p?fieldManager=heirloom&force=true", as: "apply", code: 201, body: policy},
	{name: "a policy again", do: "PATCH mutatingadmissionpolicies/p?fieldManager=heirloom&force=true", as: "apply", noop: true, later: true, body: policy},
	{name: "a policy changes", do: "PATCH mutatingadmissionpolicies/p?fieldManager=heirloom&force=true", as: "apply", body: strings.Replace(policy, "Ignore", "Fail", 1)},
	{name: "a binding", do: "PATCH mutatingadmissionpolicybindings/p?fieldManager=heirloom&force=true", as: "apply", code: 201, body: binding},
	{name: "a binding again", do: "PATCH mutatingadmissionpolicybindings/p?fieldManager=heirloom&force=true", as: "apply", noop: true, later: true, body: binding},
	{name: "a binding goes", do: "DELETE mutatingadmissionpolicybindings/p", body: "{apiVersion: v1, kind: DeleteOptions, preconditions: {uid: $uid(p)}}"},
	{name: "a webhook changes", do: "PATCH mutatingwebhookconfigurations/deny?fieldManager=heirloom", as: "strategic", body: "{metadata: {labels: {a: b}}, webhooks: [{name: h0.deny.example.com, timeoutSeconds: 5}]}"},
	{name: "a webhook does not change", do: "PATCH mutatingwebhookconfigurations/deny?fieldManager=heirloom", as: "merge", noop: true, body: "{metadata: {labels: {a: b}}}"},
	{name: "a webhook goes if it is the same", do: "DELETE mutatingwebhookconfigurations/deny", body: "{apiVersion: v1, kind: DeleteOptions, preconditions: {uid: $uid(deny), resourceVersion: '$rv(deny)'}}"},
	{name: "an Event of events.k8s.io", do: "POST /apis/events.k8s.io/v1/namespaces/default/events", body: happened},
	{name: "a series of it", do: "PATCH /apis/events.k8s.io/v1/namespaces/default/events/h.1", as: "strategic", body: "{series: {count: 2, lastObservedTime: '2026-01-02T03:04:06.000007Z'}}"},
	{name: "it, as others see it", differs: eventsApart, do: "GET events/h.1"},
	{name: "all Events", differs: eventsApart, do: "GET /apis/events.k8s.io/v1/namespaces/default/events"},
}

var reads = []step{
	{name: "list", do: "GET machines"},
	{name: "list by label", do: "GET machines?labelSelector=team%3Da"},
	{name: "list by labels", do: "GET machines?labelSelector=hook%20in%20(entry,again),!b"},
	{name: "list by a selector that is none", do: "GET machines?labelSelector=a%20b", code: 400},
	{name: "list by name", do: "GET machines?fieldSelector=metadata.name%3Dm1,metadata.namespace%3Ddefault"},
	{name: "list by a field that cannot be selected", do: "GET machines?fieldSelector=spec.clusterName%3Dc", code: 400},
	{name: "list of what has cache", do: "GET machines?resourceVersion=0&labelSelector=team"},
	{name: "list of all namespaces", do: "GET /apis/cluster.x-k8s.io/v1beta2/machines?labelSelector=hook"},
	{name: "list of partial objects", do: "GET machines?partial=List"},
	{name: "a partial object", do: "GET machines/m1?partial=true"},
	{name: "a partial Node", do: "GET nodes/n1?partial=true"},
	{name: "a patch, partial", do: "PATCH machines/m1?partial=true", as: "merge", body: "{metadata: {labels: {partial: x}}}"},
	{name: "list of Nodes", do: "GET nodes"},
	{name: "list of Nodes by label", do: "GET nodes?labelSelector=team"},
	{name: "list of nothing", do: "GET clusters"},
	{name: "schemas", do: "GET /openapi/v3/apis/example.com/v1"},
	{name: "get", do: "GET machines/m1"},
	{name: "get of what is not there", do: "GET nodes/none", code: 404},
	{name: "get of a kind that is not there", do: "GET /apis/cluster.x-k8s.io/v1beta2/namespaces/default/nothings", code: 404},
	{name: "get of a Namespace", do: "GET namespaces/elsewhere"},
	{name: "list of Secrets", do: "GET secrets"},
	{name: "list of things", do: "GET things?limit=500"},
}

var ends = []step{
	{name: "the last Machine", do: "POST machines", body: machine(last, "labels: {team: a}", "")},
	{name: "the last Node", do: "POST nodes", body: node(last, "labels: {team: a}", "")},
	{name: "the last thing", do: "POST things", body: thing(last, "", "")},
	{name: "the last ConfigMap", do: "POST configmaps", body: configMap(last, "labels: {team: a}", "")},
}
