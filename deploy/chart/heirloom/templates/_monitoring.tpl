{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* What endpoints of a ServiceMonitor and of a PodMonitor have in common. Takes a list: the root context and the monitor's values. */ -}}
{{- define "heirloom.scrape" -}}
{{- $root := index . 0 }}
{{- $values := index . 1 }}
{{- if $root.Values.insecureDiagnostics }}
scheme: http
{{- else }}
scheme: https
{{- with $values.authorization }}
authorization:
  {{- toYaml . | nindent 2 }}
{{- end }}
tlsConfig:
  {{- $values.tlsConfig | default (dict "insecureSkipVerify" true) | toYaml | nindent 2 }}
{{- end }}
{{- range $field := list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" }}
{{- with index $values $field }}
{{ dict $field . | toYaml | trim }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fails on values about monitors that are valid each, but not together. */ -}}
{{- define "heirloom.validateMonitors" -}}
{{- with .Values.monitoring }}
{{- if and .serviceMonitor.enabled .podMonitor.enabled }}
{{- fail "monitoring.serviceMonitor.enabled and monitoring.podMonitor.enabled are both true: every Pod would be scraped twice" }}
{{- end }}
{{- if and .podMonitor.enabled (not .podMonitor.authorization) (not $.Values.insecureDiagnostics) }}
{{- fail "monitoring.podMonitor.enabled needs monitoring.podMonitor.authorization: a PodMonitor cannot use the token of Prometheus' own ServiceAccount. Name a Secret with a token, or set insecureDiagnostics" }}
{{- end }}
{{- end }}
{{- end }}
