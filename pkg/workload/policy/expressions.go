// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// matchConditions say whose requests the policy is for: a kubelet's, about its own Node.
func matchConditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{
		{Name: "kubelet", Expression: `has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups && ` +
			`request.userInfo.username == 'system:node:' + object.metadata.name`},
		{Name: "format", Expression: expand(`params.?data.?format.orValue('') == 'FORMAT'`)},
	}
}

// variables are evaluated when they are needed, each once. One sees those above it.
func variables() []admissionregistrationv1.Variable {
	all := slices.Concat(identity(), present(), wanted())
	for i := range all {
		all[i].Expression = expand(all[i].Expression)
	}
	return all
}

// expand puts constants of the rest of the program into an expression.
func expand(expression string) string {
	guard := clusterv1.NodeUninitializedTaint
	return strings.NewReplacer(
		"FORMAT", format,
		"PART_KEY", partKey,
		"ENDING", ending,
		"GUARD_LINE", guardLine,
		"GUARD_KEY", guard.Key,
		"GUARD_EFFECT", string(guard.Effect),
		"GUARD_ANNOTATION", inherit.UninitializedAnnotation,
		"TAINTS_ANNOTATION", clusterv1.TaintsFromMachineAnnotation,
		"TRACKING", "'"+strings.Join(inherit.TrackingAnnotations(), "', '")+"'",
	).Replace(strings.TrimSpace(expression))
}

// identity finds the Machine that the Node is, and what it declares, in the way of inherit.Match.
func identity() []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		// What the Node is known by.
		{Name: "providerID", Expression: `object.?spec.?providerID.orValue('')`},
		{Name: "names", Expression: `
[object.metadata.name] + object.?status.?addresses.orValue([])
  .filter(a, a.type in ['Hostname', 'InternalDNS', 'InternalIP'] && a.address != '')
  .map(a, a.address)`},
		{Name: "keys", Expression: `variables.names + [variables.providerID].filter(p, p != '')`},
		// The numbers of Machines that may be it.
		{Name: "candidates", Expression: `
variables.keys
  .map(k, 'i.' + k.find('ENDING') + '.' + k.split('.')[0].find('ENDING'))
  .distinct()
  .filter(i, i in params.data)
  .map(i, params.data[i].split(','))
  .flatten()`},
		// The lines of those that fit. Their number is before them, as two Machines may have the same lines. One that is
		// another instance, or the Machine of another Node, does not fit. To look for a key in the whole text first is quick.
		{Name: "machines", Expression: `
variables.candidates
  .map(n, n + '\n' + params.data['m.' + n])
  .filter(m, variables.keys.exists(k, m.contains('\n' + k)))
  .map(m, m.split('\n'))
  .filter(m, m[2] == '' || variables.providerID == '' || m[2] == variables.providerID)
  .filter(m, m[3] == '' || m[3] == object.metadata.name)
  .filter(m, m[3] != '' || m[2] != '' && m[2] == variables.providerID || m.slice(4, m.size()).exists(n, n in variables.names))
  .distinct()`},
		// By status.nodeRef, then by spec.providerID, then by name or address.
		{Name: "matches", Expression: `
[
  variables.machines.filter(m, m[3] != ''),
  variables.machines.filter(m, m[2] != '' && m[2] == variables.providerID),
  variables.machines
].filter(l, l.size() > 0)`},
		// In one of several parts, other Machines may be elsewhere. What is found by a nodeRef or a providerID has all that could
		// be taken for the Node beside it; what is found by names alone only if it has all that the Node brings.
		{Name: "found", Expression: `
variables.matches.size() > 0 && variables.matches[0].size() == 1 && variables.matches[0][0][1] != '' &&
(!('PART_KEY' in params.data) || variables.matches[0].all(m, m[3] != '' || m[2] != '' && m[2] == variables.providerID ||
  variables.providerID == '' && variables.names.all(n, n in m.slice(4, m.size()))))`},
		{Name: "content", Expression: `params.data['c.' + variables.matches[0][0][1]].split('\n')`},
	}
}

// present is what the Node has.
func present() []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "annotationsNow", Expression: `object.metadata.?annotations.orValue({})`},
		{Name: "taintsNow", Expression: `object.?spec.?taints.orValue([])`},
		{Name: "guardedNow", Expression: `variables.taintsNow.exists(t, t.key == 'GUARD_KEY' && t.effect == 'GUARD_EFFECT')`},
		// The policy is invoked again after it has changed something. Then the mark of the guard is its own, and stays; a
		// kubelet's does not. It is told by what else was recorded.
		{Name: "again", Expression: `
variables.annotationsNow[?'GUARD_ANNOTATION'] == optional.of('added') &&
('TAINTS_ANNOTATION=' + variables.annotationsNow[?'TAINTS_ANNOTATION'].orValue('\n')) in variables.content`},
	}
}

// wanted is what the Node is to have of its Machine.
func wanted() []admissionregistrationv1.Variable {
	return []admissionregistrationv1.Variable{
		{Name: "guard", Expression: `variables.content[0] == 'GUARD_LINE' && (!variables.guardedNow || variables.again)`},
		{Name: "labels", Expression: `
variables.content[1].split(',').filter(l, l != '')
  .transformMapEntry(i, l, {l.split('=')[0]: l.split('=')[1]})`},
		{Name: "annotations", Expression: `
(variables.content.slice(3, variables.content.size()) + (variables.guard ? ['GUARD_ANNOTATION=added'] : []))
  .transformMapEntry(i, l, {l.split('=', 2)[0]: l.split('=', 2)[1].replace('%0A', '\n').replace('%25', '%')})`},
		{Name: "taints", Expression: `
variables.content[2].split(',').filter(t, t != '')
  .map(t, {'key': t.split('=')[0], 'value': t.split('=')[1].split(':')[0], 'effect': t.split(':')[1]}) +
(variables.guard ? [{'key': 'GUARD_KEY', 'value': '', 'effect': 'GUARD_EFFECT'}] : [])`},
	}
}

// patch returns the JSON patch. It is one for labels, annotations and taints, so that a Node gets all of it or nothing. A
// taint with the same key and effect is replaced where it is, and only if its value is another; new ones come last. So it
// may be applied twice.
func patch() string {
	return expand(`
!variables.found ? [] :
(has(object.metadata.labels) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}]) +
variables.labels.map(k, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey(k), value: variables.labels[k]}) +
(has(object.metadata.annotations) ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]) +
[TRACKING].filter(k, k in variables.annotationsNow).map(k, JSONPatch{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey(k)}) +
variables.annotations.map(k, JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey(k), value: variables.annotations[k]}) +
(has(object.spec.taints) ? [] : [JSONPatch{op: 'add', path: '/spec/taints', value: []}]) +
lists.range(variables.taintsNow.size())
  .filter(i, variables.taints.exists(t, t.key == variables.taintsNow[i].key && t.effect == variables.taintsNow[i].effect &&
    t.value != variables.taintsNow[i].?value.orValue('')))
  .map(i, JSONPatch{op: 'replace', path: '/spec/taints/' + string(i), value: variables.taints.filter(t,
    t.key == variables.taintsNow[i].key && t.effect == variables.taintsNow[i].effect)[0]}) +
variables.taints.filter(t, !variables.taintsNow.exists(n, n.key == t.key && n.effect == t.effect))
  .map(t, JSONPatch{op: 'add', path: '/spec/taints/-', value: t})`)
}
