{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Fails on values of how the program runs that are valid each, but not together. What is valid alone, the schema says. */ -}}
{{- define "heirloom.validateProgram" -}}
{{- /* cert-manager's chart means the release's namespace by it. Here it would switch off all other namespaces without a word. */ -}}
{{- if hasKey .Values "namespace" }}
{{- fail "namespace: set watchNamespace to confine the watch; the release's namespace is helm's --namespace" }}
{{- end }}
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
{{- if and .Values.watchNamespace .Values.managementCluster (ne $own .Values.watchNamespace) }}
{{- fail (printf "managementCluster=%s is not in the only namespace that is watched, watchNamespace=%s" .Values.managementCluster .Values.watchNamespace) }}
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
