{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The chart's name. */ -}}
{{- define "heirloom.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* The name of all objects. 50 characters leave room for suffixes in names of Services (63). */ -}}
{{- define "heirloom.fullname" -}}
{{- $name := include "heirloom.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Labels of all objects. commonLabels go over the chart's own, but not over those that select the Pods. */ -}}
{{- define "heirloom.labels" -}}
{{- $chart := printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- $own := dict "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/part-of" "heirloom"
      "app.kubernetes.io/managed-by" .Release.Service "helm.sh/chart" $chart }}
{{- merge (include "heirloom.selectorLabels" . | fromYaml) .Values.commonLabels $own | toYaml }}
{{- end }}

{{- /* Labels that select the Pods. */ -}}
{{- define "heirloom.selectorLabels" -}}
app.kubernetes.io/name: {{ include "heirloom.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: manager
{{- end }}

{{- /* Labels of what the hook needs. It is another component, so that no Service leads to its Pod. */ -}}
{{- define "heirloom.hookLabels" -}}
{{ merge (dict "app.kubernetes.io/component" "uninstall") (include "heirloom.labels" . | fromYaml) | toYaml }}
{{- end }}

{{- /* Labels and annotations of an object: those of all objects, and its own. Takes a list: the root context, the object's labels and
its annotations. Its annotations go over commonAnnotations, its labels do not go over the chart's. */ -}}
{{- define "heirloom.metadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- merge (include "heirloom.labels" $root | fromYaml) (index . 1) | toYaml | nindent 2 }}
{{- with merge (dict) (index . 2) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The same for what helm uninstall creates first. Takes a list: the root context and the weight, in whose order it does so. A Job
that has failed stays, for its log. Helm 4 prints the log, which names what is left; a Job that has succeeded is gone then. */ -}}
{{- define "heirloom.hookMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "heirloom.hookLabels" $root | nindent 2 }}
annotations:
  {{- $own := dict
    "helm.sh/hook" "pre-delete"
    "helm.sh/hook-weight" (index . 1)
    "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
  {{- if eq (index . 1) "0" }}
  {{- $_ := set $own "helm.sh/hook-output-log-policy" "hook-succeeded,hook-failed" }}
  {{- end }}
  {{- merge $own $root.Values.commonAnnotations | toYaml | nindent 2 }}
{{- end }}

{{- define "heirloom.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "heirloom.fullname" .) }}
{{- end }}

{{- /* ClusterRole and ClusterRoleBinding. */ -}}
{{- define "heirloom.clusterRoleName" -}}
{{- .Values.clusterRoleName | default (include "heirloom.fullname" .) }}
{{- end }}

{{- /* Whether helm uninstall runs a hook, as true or false. */ -}}
{{- define "heirloom.hooked" -}}
{{- ternary (not .Values.createNamespace) .Values.uninstall.hook.enabled (eq (toString .Values.uninstall.hook.enabled) "auto") }}
{{- end }}

{{- /* Whether the hook removes all entries: "true" or nothing. release is the deprecated name of cleanup. */ -}}
{{- define "heirloom.cleansUp" -}}
{{- if or .Values.uninstall.cleanup .Values.uninstall.release }}true{{ end }}
{{- end }}

{{- /* The namespaces that are watched, as a list in YAML; empty: all. */ -}}
{{- define "heirloom.watched" -}}
{{- kindIs "slice" .Values.watchNamespace | ternary .Values.watchNamespace (splitList "," (toString .Values.watchNamespace)) | compact | toYaml }}
{{- end }}

{{- /* Which Clusters are enrolled. labelled is a deprecated spelling. */ -}}
{{- define "heirloom.enrollment" -}}
{{- eq .Values.enrollment "labelled" | ternary "labeled" .Values.enrollment }}
{{- end }}

{{- /* Service and Certificate. */ -}}
{{- define "heirloom.webhookName" -}}
{{- include "heirloom.fullname" . }}-webhook
{{- end }}

{{- /* Secret with the keys of the paths that workload clusters call. The program creates it. */ -}}
{{- define "heirloom.workloadKeySecretName" -}}
{{- include "heirloom.fullname" . }}-workload-webhook
{{- end }}

{{- /* Fails on values that are valid each, but not together. */ -}}
{{- define "heirloom.validate" -}}
{{- include "heirloom.validateProgram" . }}
{{- if and (not .Values.deployment.enabled) (not .Values.webhooks.url) }}
{{- fail "deployment.enabled=false needs webhooks.url: the API server must be told where Heirloom runs" }}
{{- end }}
{{- if and (eq .Values.workloadClusters.admission "webhook") (not .Values.workloadClusters.webhookURL) }}
{{- fail "workloadClusters.admission=webhook needs workloadClusters.webhookURL: API servers must be told where Heirloom is" }}
{{- end }}
{{- include "heirloom.validateCertificates" . }}
{{- include "heirloom.validateServices" . }}
{{- include "heirloom.validateMonitors" . }}
{{- end }}

{{- /* Metadata of both webhook configurations. */ -}}
{{- define "heirloom.webhookConfigurationMetadata" -}}
name: {{ include "heirloom.fullname" . }}
{{- $own := dict }}
{{- if eq .Values.certificates.mode "cert-manager" }}
{{- $own = dict "cert-manager.io/inject-ca-from" (printf "%s/%s" .Release.Namespace (include "heirloom.webhookName" .)) }}
{{- end }}
{{ include "heirloom.metadata" (list . dict (merge $own .Values.webhooks.annotations)) }}
{{- end }}

{{- /* The clientConfig of a webhook. Takes a list: the root context and the webhook's path. */ -}}
{{- define "heirloom.clientConfig" -}}
{{- $root := index . 0 }}
{{- $path := index . 1 }}
{{- if $root.Values.webhooks.url }}
url: {{ printf "%s%s" ($root.Values.webhooks.url | trimSuffix "/") $path | quote }}
{{- else }}
service:
  name: {{ include "heirloom.webhookName" $root }}
  namespace: {{ $root.Release.Namespace }}
  path: {{ $path }}
  port: 443
{{- end }}
{{- if eq $root.Values.certificates.mode "provided" }}
caBundle: {{ $root.Values.certificates.provided.caBundle | nospace }}
{{- end }}
{{- end }}

{{- /* An object on its way out is skipped, but for Nodes. For a create the field says nothing: whoever creates by apply may set it. */ -}}
{{- define "heirloom.notDeleting" -}}
- name: not-deleting
  expression: "request.operation == 'CREATE' || !has(object.metadata.deletionTimestamp)"
{{- end }}

{{- /* Cluster API's topology controller applies an object as it is and as it should be, both as dry runs, and compares the results. An entry
that a webhook adds to both would hide a change. */ -}}
{{- define "heirloom.notCompared" -}}
- name: not-compared
  expression: "!(request.dryRun && 'topology.cluster.x-k8s.io/dry-run' in object.metadata.?annotations.orValue({}))"
{{- end }}

{{- /* The label heirloom.dev/ignore counts on the new object. objectSelector alone would let an update through that adds the label,
because it matches when the old or the new object matches. */ -}}
{{- define "heirloom.notSkipped" -}}
- name: not-skipped
  expression: "!('heirloom.dev/ignore' in object.metadata.?labels.orValue({}))"
{{- end }}

{{- /* The object has changed in something that the rules read. */ -}}
{{- define "heirloom.changed" -}}
- name: changed
  expression: >-
    request.operation == 'CREATE'
    || object.?spec != oldObject.?spec
    || {{ include "heirloom.metadataChanged" . | nindent 4 | trim }}
{{- end }}

{{- /* The metadata has changed in something that the rules read. */ -}}
{{- define "heirloom.metadataChanged" -}}
object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences
{{- include "heirloom.keysChanged" . }}
{{- end }}

{{- /* The same for an object beside a Machine. Cluster API creates it for a MachineSet or a control plane, from whose template it inherits,
and later puts the Machine in that owner's place. The template stays the same. */ -}}
{{- define "heirloom.siblingChanged" -}}
object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences
&& !(object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'Machine')
&& oldObject.metadata.?ownerReferences.orValue([]).exists(o,
o.kind == 'MachineSet' || o.apiVersion.startsWith('controlplane.cluster.x-k8s.io/')))
{{- include "heirloom.keysChanged" . }}
{{- end }}

{{- /* Labels or annotations have changed in something that the rules read. A key that is new may be one that the owner declares, and one that
goes may have stood in place of the owner's. Another value does not count if the key was its writer's alone before and is now, which
the managed fields tell, and means nothing to Heirloom or Cluster API. So a controller that keeps a value of its own in an annotation
costs no call. An object without fields of Heirloom may lack anything. */ -}}
{{- define "heirloom.keysChanged" -}}
{{- range $map := list "labels" "annotations" }}
{{- $new := printf "object.metadata.?%s.orValue({})" $map }}
{{- $old := printf "oldObject.metadata.?%s.orValue({})" $map }}
{{- $owns := printf "('f:' + k) in %%s.?fieldsV1[?'f:metadata'][?'f:%s'].orValue({})" $map }}
|| object.metadata.?{{ $map }} != oldObject.metadata.?{{ $map }}
&& ({{ $new }}.exists(k, !(k in {{ $old }}))
|| !oldObject.metadata.?managedFields.orValue([]).exists(m, m.?manager.orValue('') == 'heirloom')
|| {{ $old }}.exists(k,
{{ $new }}[?k] != {{ $old }}[?k]
&& (!(k in {{ $new }}) || k.contains('heirloom') || k.contains('x-k8s.io') || k.contains('cluster-autoscaler')
|| !oldObject.metadata.managedFields.exists_one(m, {{ printf $owns "m" }})
|| !object.metadata.?managedFields.orValue([]).exists_one(m, m.?manager.orValue('') != 'heirloom'
&& {{ printf $owns "m" }}
&& oldObject.metadata.managedFields.exists(n, n.?manager == m.?manager && {{ printf $owns "n" }})))))
{{- end }}
{{- end }}

{{- /* The same for a Node, whose tracking annotations tell what came from its Machine. Heirloom has not seen a Node without them. */ -}}
{{- define "heirloom.nodeMetadataChanged" -}}
{{- range $map := list "labels" "annotations" }}
{{- $new := printf "object.metadata.?%s.orValue({})" $map }}
{{- $old := printf "oldObject.metadata.?%s.orValue({})" $map }}
{{- $tracking := list (printf "cluster.x-k8s.io/%s-from-machine" $map) (printf "heirloom.dev/%s-from-machine" $map) "heirloom.dev/record-from-machine" }}
{{- if eq $map "annotations" }}
|| {{ end -}}
object.metadata.?{{ $map }} != oldObject.metadata.?{{ $map }}
&& ({{ $new }}.exists(k, !(k in {{ $old }}))
|| !('cluster.x-k8s.io/labels-from-machine' in oldObject.metadata.?annotations.orValue({}))
|| {{ $old }}.exists(k,
{{ $new }}[?k] != {{ $old }}[?k]
&& (!(k in {{ $new }}) || k.contains('heirloom') || k.contains('x-k8s.io')
|| [{{ range $i, $name := $tracking }}{{ if $i }}, {{ end }}'{{ $name }}'{{ end }}]
.exists(a, oldObject.metadata.annotations[?a].orValue('').contains(k)))))
{{- end }}
{{- end }}

{{- /* Templates of providers inherit nothing. Cluster API's contract says how their kinds are named. */ -}}
{{- define "heirloom.noTemplate" -}}
- name: no-template
  expression: "!request.kind.kind.endsWith('Template')"
{{- end }}

{{- /* Kinds of Cluster API that inherit, owners before what they own. only: which of them. */ -}}
{{- define "heirloom.children" -}}
- {resource: machinedeployments, only: heirloom.inTopologyOrAutoscaled}
- {resource: machinepools, only: heirloom.inTopologyOrAutoscaled}
- {resource: machinesets}
- {resource: machines}
{{- end }}

{{- /* Their resources, for rules of RBAC. */ -}}
{{- define "heirloom.childResources" -}}
{{- range $i, $kind := fromYamlArray (include "heirloom.children" .) }}{{ if $i }}, {{ end }}{{ $kind.resource }}{{ end -}}
{{- end }}

{{- /* Only objects that a Cluster's topology manages, and those that cluster-autoscaler scales, or did before the update. */ -}}
{{- define "heirloom.inTopologyOrAutoscaled" -}}
{{- $autoscaled := "'cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size' in %s.metadata.?annotations.orValue({})" -}}
- name: in-topology-or-autoscaled
  expression: >-
    'topology.cluster.x-k8s.io/owned' in object.metadata.?labels.orValue({})
    || {{ printf $autoscaled "object" }}
    || request.operation == 'UPDATE' && {{ printf $autoscaled "oldObject" }}
{{- end }}

{{- /* API groups of infrastructure and bootstrap providers. */ -}}
{{- define "heirloom.providerGroups" -}}
- infrastructure.cluster.x-k8s.io
- bootstrap.cluster.x-k8s.io
{{- range .Values.additionalProviderGroups }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* A label selector that matches what both do. Takes a list of two. If both set a label, the first wins. */ -}}
{{- define "heirloom.bothSelectors" -}}
{{- $own := index . 0 }}{{ $more := index . 1 }}
{{- $both := dict }}
{{- with merge (dict) ($own.matchLabels | default dict) ($more.matchLabels | default dict) }}
{{- $_ := set $both "matchLabels" . }}
{{- end }}
{{- with concat ($own.matchExpressions | default list) ($more.matchExpressions | default list) }}
{{- $_ := set $both "matchExpressions" . }}
{{- end }}
{{- toYaml $both }}
{{- end }}

{{- /* Objects without the label heirloom.dev/ignore that, if it is given, have a label. Takes a list: the root context and the label's key. */ -}}
{{- define "heirloom.objectSelector" -}}
{{- $own := list (dict "key" "heirloom.dev/ignore" "operator" "DoesNotExist") }}
{{- range slice . 1 }}
{{- $own = append $own (dict "key" . "operator" "Exists") }}
{{- end }}
objectSelector:
  {{- include "heirloom.bothSelectors" (list (dict "matchExpressions" $own) (index . 0).Values.webhooks.objectSelector) | nindent 2 }}
{{- end }}

{{- /* What the program does not watch it is not asked about, and neither about what is excluded. Does not concern cluster-scoped objects. */ -}}
{{- define "heirloom.watchedNamespace" -}}
{{- $own := dict }}
{{- $watched := include "heirloom.watched" . | fromYamlArray }}
{{- if eq (len $watched) 1 }}
{{- $own = dict "matchLabels" (dict "kubernetes.io/metadata.name" (first $watched)) }}
{{- else if $watched }}
{{- $own = dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" $watched)) }}
{{- else if .Values.webhooks.excludeNamespaces }}
{{- $own = dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" .Values.webhooks.excludeNamespaces)) }}
{{- end }}
namespaceSelector:
  {{- include "heirloom.bothSelectors" (list $own .Values.webhooks.namespaceSelector) | nindent 2 }}
{{- end }}

{{- /* A key of Heirloom in labels or annotations is new, or has another value. Takes a list: the optional map, and the map before. */ -}}
{{- define "heirloom.ownKeyChanged" -}}
{{- $new := index . 0 }}{{ $old := index . 1 -}}
{{ $new }} != {{ $old }} && {{ $new }}.orValue({}).exists(k,
k.contains('heirloom.dev/') && {{ $new }}.orValue({})[?k] != {{ $old }}.orValue({})[?k])
{{- end }}

{{- /* Typed taints that the validating webhook might refuse. The test is rough, so that API servers can afford it: whatever it lets
pass is right, and the webhook judges the rest. The argument is a list of taints. */ -}}
{{- define "heirloom.questionableTaints" -}}
type({{ . }}) != list || {{ . }}.size() > 16
|| {{ . }}.exists(t,
type(t) != map || type(t.?key.orValue('')) != string || type(t.?value.orValue('')) != string
|| !t.?key.orValue('').matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')
|| t.?key.orValue('').size() > 63 || t.key.contains('kubernetes.io/') || t.key.contains('x-k8s.io/')
|| t.?value.orValue('').size() > 63
|| !t.?value.orValue('').matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')
|| !(t.?effect.orValue('') in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])
|| !(t.?propagation.orValue('') in ['Always', 'OnInitialization'])
|| !{{ . }}.exists_one(u, u.?key.orValue('') == t.key && u.?effect.orValue('') == t.effect))
{{- end }}

{{- /* The same for the value of an annotation, in which each key is there once. Takes a list: the value, and what follows each taint. */ -}}
{{- define "heirloom.questionableAnnotation" -}}
{{- $value := index . 0 -}}
{{ $value }}.size() > 250 || {{ $value }}.contains('kubernetes.io/') || {{ $value }}.contains('x-k8s.io/')
|| !{{ $value }}.split(',').all(t,
t.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?(=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)?:(NoSchedule|PreferNoSchedule|NoExecute){{ index . 1 }}$')
&& {{ $value }}.split(',').exists_one(u, u.split(':')[0].split('=')[0] == t.split(':')[0].split('=')[0]))
{{- end }}

{{- /* What a start-up gate waits for, as pkg/taint reads it. */ -}}
{{- define "heirloom.opens" -}}
{{ " until (condition ([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?=(True|False|Unknown)|daemonset [a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)" }}
{{- end }}
