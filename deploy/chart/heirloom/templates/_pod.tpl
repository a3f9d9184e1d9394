{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* What the Pods of the Deployment and of the hook have in common. In each, what is set for all charts of the release counts, too. */ -}}

{{- /* The image, in the registry that wins. Without a registry, the repository is all of its name. */ -}}
{{- define "heirloom.image" -}}
{{- $global := .Values.global | default dict }}
{{- $image := kindIs "map" $global.image | ternary $global.image dict }}
{{- $registry := coalesce $global.imageRegistry $image.registry .Values.image.registry | default "" | trimSuffix "/" }}
{{- $name := list $registry .Values.image.repository | compact | join "/" }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $name .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $name (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- /* Secrets for pulling images, each once. */ -}}
{{- define "heirloom.imagePullSecrets" -}}
{{- $names := list }}
{{- range concat ((.Values.global).imagePullSecrets | default list) .Values.imagePullSecrets }}
{{- if kindIs "string" . }}
{{- $names = append $names . }}
{{- else }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}
{{- with uniq $names }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fields of the Pod about pulling, priority, runtime and names of hosts. */ -}}
{{- define "heirloom.podStart" -}}
{{- include "heirloom.imagePullSecrets" . | trim }}
{{- with .Values.priorityClassName | default (.Values.global).priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Fields of the Pod about where it runs. */ -}}
{{- define "heirloom.scheduling" -}}
{{- with merge (dict) .Values.nodeSelector ((.Values.global).nodeSelector | default dict) }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat .Values.tolerations ((.Values.global).tolerations | default list) | uniq }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Volumes of the Deployment's Pods, as a list. */ -}}
{{- define "heirloom.volumes" -}}
- name: serving-certs
{{- if eq .Values.certificates.mode "self" }}
  emptyDir:
    medium: Memory
{{- else }}
  secret:
    secretName: {{ include "heirloom.certificateSecretName" . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.webhooks.clientCA.configMapName }}
- name: client-ca
  configMap:
    name: {{ . }}
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Where its container mounts them, as a list. */ -}}
{{- define "heirloom.volumeMounts" -}}
- name: serving-certs
  mountPath: /tmp/k8s-webhook-server/serving-certs
  {{- if ne .Values.certificates.mode "self" }}
  readOnly: true
  {{- end }}
{{- if .Values.webhooks.clientCA.configMapName }}
- name: client-ca
  mountPath: /etc/heirloom/client-ca
  readOnly: true
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "heirloom.topologySpreadConstraints" -}}
{{- $constraints := .Values.topologySpreadConstraints }}
{{- if not $constraints }}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
{{- $constraints = append $constraints (dict "topologyKey" $key "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway") }}
{{- end }}
{{- end }}
{{- /* By the hash, Pods of a revision that is on its way out do not count. */ -}}
{{- $ours := dict
  "labelSelector" (dict "matchLabels" (include "heirloom.selectorLabels" . | fromYaml))
  "matchLabelKeys" (list "pod-template-hash") }}
{{- range $constraints }}
{{- $constraint := . }}
{{- if not (hasKey . "labelSelector") }}
{{- $constraint = merge (dict) . $ours }}
{{- end }}
- {{ $constraint | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}
