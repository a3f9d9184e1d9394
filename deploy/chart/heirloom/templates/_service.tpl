{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* How a Service is reached. Takes its values; those of the webhooks' Service have fewer. */ -}}
{{- define "heirloom.serviceSpec" -}}
type: {{ .type }}
{{- range $field := list "loadBalancerClass" "loadBalancerSourceRanges" "externalTrafficPolicy" "ipFamilyPolicy" "ipFamilies" }}
{{- with index $ $field }}
{{ dict $field . | toYaml | trim }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fails on values of a Service that its type does not have. The API server's message would not name the value. */ -}}
{{- define "heirloom.validateServices" -}}
{{- $service := .Values.workloadClusters.service }}
{{- if and (eq $service.type "ClusterIP") $service.nodePort }}
{{- fail "workloadClusters.service.nodePort needs workloadClusters.service.type=NodePort or LoadBalancer" }}
{{- end }}
{{- if and (eq $service.type "ClusterIP") $service.externalTrafficPolicy }}
{{- fail "workloadClusters.service.externalTrafficPolicy needs workloadClusters.service.type=NodePort or LoadBalancer" }}
{{- end }}
{{- range $field := list "loadBalancerClass" "loadBalancerSourceRanges" }}
{{- if and (ne $service.type "LoadBalancer") (index $service $field) }}
{{- fail (printf "workloadClusters.service.%s needs workloadClusters.service.type=LoadBalancer" $field) }}
{{- end }}
{{- end }}
{{- range include "heirloom.watched" . | fromYamlArray }}
{{- if has . $.Values.webhooks.excludeNamespaces }}
{{- fail (printf "webhooks.excludeNamespaces has %s, which is a namespace of watchNamespace: remove it from one of the two" .) }}
{{- end }}
{{- end }}
{{- end }}
