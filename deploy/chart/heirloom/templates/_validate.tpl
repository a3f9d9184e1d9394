{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Fails on values of how the program runs that are valid each, but not together. What is valid alone, the schema says. */ -}}
{{- define "heirloom.validateProgram" -}}
{{- include "heirloom.validateNames" . }}
{{- include "heirloom.validateDurations" . }}
{{- range $i, $fact := .Values.facts }}
{{- with include "heirloom.problemOfFact" (list $ $fact) | trim }}
{{- fail (printf "facts[%d]: %s" $i .) }}
{{- end }}
{{- end }}
{{- include "heirloom.validateKeys" . }}
{{- include "heirloom.validateEffects" . }}
{{- range $name := list "additionalSyncMachineLabels" "additionalSyncMachineAnnotations" }}
{{- range index $.Values $name }}
{{- /* With nothing as an alternative, whatever is valid matches nothing. */ -}}
{{- if not (regexMatch (printf "(?:%s)|" .) "") }}
{{- fail (printf "%s: %q is not a valid Go regular expression" $name .) }}
{{- end }}
{{- end }}
{{- end }}
{{- /* Of objects without a namespace, two releases of one name would be the same. Helm refuses that, too, but not in words of this chart. */ -}}
{{- $there := lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" (include "heirloom.clusterRoleName" .) }}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-namespace" .Release.Namespace $there }}
{{- if ne $owner .Release.Namespace }}
{{- fail (printf "the ClusterRole %s belongs to the release in namespace %s: choose another release name, or set fullnameOverride" (include "heirloom.clusterRoleName" .) $owner) }}
{{- end }}
{{- $own := .Values.managementCluster | splitList "/" | first }}
{{- $watched := include "heirloom.watched" . | fromYamlArray }}
{{- if and $watched .Values.managementCluster (not (has $own $watched)) }}
{{- fail (printf "managementCluster=%s is not in a namespace that is watched, watchNamespace=%s" .Values.managementCluster (join "," $watched)) }}
{{- end }}
{{- with .Values.workloadClusters }}
{{- if and (not .enabled) (or .webhookURL (not (has .admission (list "auto" "none")))) }}
{{- fail "workloadClusters.enabled=false skips workload clusters: workloadClusters.webhookURL must be empty, and workloadClusters.admission auto or none" }}
{{- end }}
{{- if and .secretsIn (or (not .enabled) $.Values.watchNamespace) }}
{{- fail "workloadClusters.secretsIn needs workloadClusters.enabled, and no watchNamespace, which confines the right by itself" }}
{{- end }}
{{- end }}
{{- with .Values.leaderElection }}
{{- if and .enabled (not (and (lt (int .retryPeriodSeconds) (int .renewDeadlineSeconds)) (lt (int .renewDeadlineSeconds) (int .leaseDurationSeconds)))) }}
{{- fail "leaderElection.retryPeriodSeconds must be less than leaderElection.renewDeadlineSeconds, and that less than leaderElection.leaseDurationSeconds" }}
{{- end }}
{{- end }}
{{- if and .Values.logging.vmodule (ne .Values.logging.format "text") }}
{{- fail "logging.vmodule needs logging.format=text" }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create=false needs serviceAccount.name: the ServiceAccount that is there already" }}
{{- end }}
{{- if and .Values.webhooks.clientCA.names (not .Values.webhooks.clientCA.configMapName) }}
{{- fail "webhooks.clientCA.names needs webhooks.clientCA.configMapName: the CAs of these clients" }}
{{- end }}
{{- include "heirloom.validateDeployment" . }}
{{- end }}

{{- define "heirloom.validateDeployment" -}}
{{- /* Names of owners on ghcr.io have no dot and no colon, so this is a registry in the wrong place. */ -}}
{{- $first := .Values.image.repository | splitList "/" | first }}
{{- if and (eq .Values.image.registry "ghcr.io") (hasPrefix "ghcr.io/" (include "heirloom.image" .)) (regexMatch "[.:]|^localhost$" $first) }}
{{- fail (printf "image.repository=%s begins with a registry: set image.registry=%s and image.repository=%s" .Values.image.repository $first (trimPrefix (printf "%s/" $first) .Values.image.repository)) }}
{{- end }}
{{- if and .Values.deployment.enabled (lt (int .Values.replicaCount) 1) }}
{{- fail "replicaCount=0: no program would run; to stop it for a while, use kubectl scale; to run it elsewhere, set deployment.enabled=false" }}
{{- end }}
{{- range $kind := list "requests" "limits" }}
{{- range $name, $_ := index $.Values.resources $kind | default dict }}
{{- if not (regexMatch "^(cpu|memory|ephemeral-storage|hugepages-.+|.+/.+)$" $name) }}
{{- fail (printf "resources.%s.%s: there is no resource of this name; use cpu, memory, ephemeral-storage, or the name of an extended resource, such as example.com/device" $kind $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.leaderElection.enabled) }}
{{- fail (printf "replicaCount=%v needs leaderElection.enabled: two resync loops would do everything twice" .Values.replicaCount) }}
{{- end }}
{{- if and (include "heirloom.cleansUp" .) (ne (include "heirloom.hooked" .) "true") }}
{{- fail "uninstall.cleanup needs the hook: set uninstall.hook.enabled=true, and apply the manifests with helm" }}
{{- end }}
{{- if and (include "heirloom.cleansUp" .) (not .Values.leaderElection.enabled) }}
{{- fail "uninstall.cleanup needs leaderElection.enabled: no Lease would tell when the loop has stopped" }}
{{- end }}
{{- $seen := dict }}
{{- range $name, $port := .Values.ports }}
{{- $port := toString $port }}
{{- if hasKey $seen $port }}
{{- fail (printf "ports.%s and ports.%s are both %s" (get $seen $port) $name $port) }}
{{- end }}
{{- $_ := set $seen $port $name }}
{{- end }}
{{- $strategy := .Values.strategy }}
{{- if and (eq $strategy.type "RollingUpdate") (has (toString $strategy.rollingUpdate.maxUnavailable) (list "0" "0%")) (has (toString $strategy.rollingUpdate.maxSurge) (list "0" "0%")) }}
{{- fail "strategy.rollingUpdate.maxUnavailable and .maxSurge are both 0: no Pod could ever be replaced" }}
{{- end }}
{{- $minAvailable := toString .Values.podDisruptionBudget.minAvailable }}
{{- $least := int $minAvailable }}
{{- if hasSuffix "%" $minAvailable }}
{{- $least = int (ceil (divf (mulf (trimSuffix "%" $minAvailable) .Values.replicaCount) 100)) }}
{{- end }}
{{- if and (ne $minAvailable "") (gt (int .Values.replicaCount) 1) (ge $least (int .Values.replicaCount)) }}
{{- fail (printf "podDisruptionBudget.minAvailable=%s must be less than replicaCount=%v: no Node could be drained" $minAvailable .Values.replicaCount) }}
{{- end }}
{{- if has (toString .Values.podDisruptionBudget.maxUnavailable) (list "0" "0%") }}
{{- if and (eq $minAvailable "") .Values.podDisruptionBudget.enabled }}
{{- fail "podDisruptionBudget.maxUnavailable must not be 0: no Node could be drained" }}
{{- end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled .Values.hostNetwork }}
{{- fail "networkPolicy.enabled has no effect with hostNetwork: NetworkPolicies do not reach the network of Nodes" }}
{{- end }}
{{- end }}

{{- /* Names that other charts use. cert-manager's chart means the release's namespace by namespace. */ -}}
{{- define "heirloom.validateNames" -}}
{{- $instead := dict
  "namespace" "set watchNamespace to confine the watch; the release's namespace is helm's --namespace"
  "crds" "remove it: this chart has no CRDs"
  "featureGates" "remove it: Heirloom has no feature gates; clusterAPITaintPropagation is for Cluster API's gate MachineTaintPropagation"
  "prometheus" "set monitoring.serviceMonitor, monitoring.podMonitor or monitoring.prometheusRule"
  "serviceMonitor" "set monitoring.serviceMonitor"
  "webhook" "set webhooks, such as webhooks.timeoutSeconds" }}
{{- range $name := keys $instead | sortAlpha }}
{{- if hasKey $.Values $name }}
{{- fail (printf "%s: %s" $name (get $instead $name)) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Durations of Go, which knows no days. */ -}}
{{- define "heirloom.validateDurations" -}}
{{- $some := "^([0-9]+(ms|s|m|h))+$" }}
{{- range $name, $value := dict "syncPeriod" .Values.syncPeriod "logging.flushFrequency" .Values.logging.flushFrequency "noExecuteDeadline" .Values.noExecuteDeadline }}
{{- if not (regexMatch $some $value) }}
{{- fail (printf "%s=%s must be a duration such as 24h, 10m or 1h30m" $name $value) }}
{{- end }}
{{- if and (ne $name "noExecuteDeadline") (not (regexMatch "[1-9]" $value)) }}
{{- fail (printf "%s=%s must be longer than 0" $name $value) }}
{{- end }}
{{- end }}
{{- $validity := ((.Values.certificates).certManager).duration | default "" }}
{{- if and $validity (not (regexMatch "^[1-9][0-9]*h([0-9]+m)?([0-9]+s)?$" $validity)) }}
{{- fail (printf "certificates.certManager.duration=%s must be a duration in hours, such as 2160h for 90 days" $validity) }}
{{- end }}
{{- end }}

{{- /* What the program would refuse in a fact; empty if nothing. Takes a list: the root context and the fact. */ -}}
{{- define "heirloom.problemOfFact" -}}
{{- $fact := index . 1 }}
{{- $ofMachine := and (eq $fact.group "cluster.x-k8s.io") (eq $fact.kind "Machine") }}
{{- $keyed := regexMatch "^metadata[.](labels|annotations)\\['[^']+'\\]$" $fact.fieldPath }}
{{- if not (or $ofMachine (has $fact.group (include "heirloom.providerGroups" (index . 0) | fromYamlArray))) -}}
group {{ $fact.group }} is no group of a known provider: add it to additionalProviderGroups. Facts are fields of a Machine of cluster.x-k8s.io, its InfraMachine or its BootstrapConfig.
{{- else if hasPrefix "." $fact.fieldPath -}}
fieldPath={{ $fact.fieldPath }} must be without the leading dot: {{ trimPrefix "." $fact.fieldPath }}
{{- else if not (or $keyed (regexMatch "^[A-Za-z0-9_]+(\\[[0-9]{1,2}\\])*([.][A-Za-z0-9_]+(\\[[0-9]{1,2}\\])*)*$" $fact.fieldPath)) -}}
fieldPath={{ $fact.fieldPath }} must be a field such as spec.instanceType or spec.disks[0].type, or metadata.labels['KEY'] or metadata.annotations['KEY']
{{- else if and $ofMachine (not $keyed) (not (has $fact.fieldPath (list "spec.failureDomain" "status.failureDomain"))) -}}
fieldPath={{ $fact.fieldPath }} cannot be read: of a Machine, only spec.failureDomain, status.failureDomain, labels and annotations can
{{- else if eq (include "heirloom.neverOnNodes" $fact.label) "true" -}}
label={{ $fact.label }} never reaches a Node: choose a label of your own, such as node.example.com/type
{{- end }}
{{- end }}

{{- /* Whether a label is about the object that has it, so that no Node inherits it (OfItself in pkg/inherit). */ -}}
{{- define "heirloom.neverOnNodes" -}}
{{- $domain := splitList "/" . | first }}
{{- $gitops := list "kubectl.kubernetes.io" "argocd.argoproj.io" "kustomize.toolkit.fluxcd.io" "helm.toolkit.fluxcd.io" "meta.helm.sh" }}
{{- $own := list "cluster.x-k8s.io" "topology.cluster.x-k8s.io" "heirloom.dev" "heirloom.node-restriction.kubernetes.io" }}
{{- $keys := list "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- range list "revision" "revision-history" "desired-replicas" "max-replicas" }}
{{- $keys = append $keys (printf "machinedeployment.clusters.x-k8s.io/%s" .) }}
{{- end }}
{{- or (has $domain $gitops) (has $domain $own) (hasSuffix ".heirloom.dev" $domain) (has . $keys) }}
{{- end }}

{{- /* Keys that tenants may choose, and the role of workers. A prefix must not reach labels that other programs of the cluster trust. */ -}}
{{- define "heirloom.validateKeys" -}}
{{- range .Values.perClusterSyncAllowed }}
{{- $prefix := trimSuffix "*" . }}
{{- $reaches := or (contains "kubernetes.io" $prefix) (contains "k8s.io" $prefix) }}
{{- range list "kubernetes.io/" "k8s.io/" "node.kubernetes.io/" "node-role.kubernetes.io/" "node-restriction.kubernetes.io/" "topology.kubernetes.io/" "beta.kubernetes.io/" }}
{{- $reaches = or $reaches (hasPrefix $prefix .) }}
{{- end }}
{{- if and (hasSuffix "*" .) $prefix $reaches }}
{{- fail (printf "perClusterSyncAllowed has %s: everybody who may change a Cluster could give its Nodes labels of kubernetes.io, such as a role; list single keys, or use additionalSyncMachineLabels, which only you set" .) }}
{{- end }}
{{- end }}
{{- if has .Values.workerRole (list "control-plane" "master") }}
{{- fail (printf "workerRole=%s: this role is for control planes; use a role such as worker" .Values.workerRole) }}
{{- end }}
{{- end }}

{{- /* Values without effect. */ -}}
{{- define "heirloom.validateEffects" -}}
{{- if and (regexMatch "[1-9]" .Values.noExecuteDeadline) (ne .Values.noExecute "budgets") (eq .Values.perClusterNoExecute "none") }}
{{- fail "noExecuteDeadline needs noExecute=budgets: without budgets, no Node waits for its Pods" }}
{{- end }}
{{- if and .Values.uninstall.keepValues (not (include "heirloom.cleansUp" .)) }}
{{- fail "uninstall.keepValues needs uninstall.cleanup=true: otherwise all values stay anyway" }}
{{- end }}
{{- if and (or .Values.startupGates.daemonSets .Values.startupGates.csiNodes) (not .Values.managementCluster) }}
{{- fail "startupGates.daemonSets and startupGates.csiNodes need managementCluster: they are about Nodes of the management cluster, and without it they inherit nothing" }}
{{- end }}
{{- if and .Values.pluginRoles.aggregateToView (not .Values.pluginRoles.create) }}
{{- fail "pluginRoles.aggregateToView needs pluginRoles.create=true: otherwise there is no role to aggregate" }}
{{- end }}
{{- if and .Values.networkPolicy.workloadFrom (not .Values.workloadClusters.webhookURL) }}
{{- fail "networkPolicy.workloadFrom needs workloadClusters.webhookURL: without it, the port for workload clusters is closed" }}
{{- end }}
{{- end }}
