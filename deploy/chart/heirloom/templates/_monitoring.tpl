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
{{- /* Metrics are served with the certificate of the webhooks. Its Secret has the CA. */}}
{{- $ca := dict "secret" (dict "name" (include "heirloom.certificateSecretName" $root) "key" "ca.crt") }}
{{- $verified := dict "ca" $ca "serverName" (printf "%s.%s.svc" (include "heirloom.webhookName" $root) $root.Release.Namespace) }}
tlsConfig:
  {{- $values.tlsConfig | default (ternary $verified (dict "insecureSkipVerify" true) (eq $root.Values.certificates.mode "cert-manager")) | toYaml | nindent 2 }}
{{- end }}
{{- range $field := list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" }}
{{- with index $values $field }}
{{ dict $field . | toYaml | trim }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The alerts, as the values change them. A group without an alert is left out. */ -}}
{{- define "heirloom.alerts" -}}
{{- $values := .Values.monitoring.prometheusRule }}
{{- $known := list }}
{{- $groups := list }}
{{- range $group := (.Files.Get "files/alerts.yaml" | fromYaml).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- $known = append $known $rule.alert }}
{{- $change := index $values.alerts $rule.alert | default dict }}
{{- $_ := set $rule.labels "severity" ($change.severity | default $rule.labels.severity) }}
{{- with $values.runbookBaseURL }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" (trimSuffix "/" .) (base $rule.annotations.runbook_url)) }}
{{- end }}
{{- if dig "enabled" true $change }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (set $group "rules" $rules) }}
{{- end }}
{{- end }}
{{- range $name, $_ := $values.alerts }}
{{- if not (has $name $known) }}
{{- fail (printf "monitoring.prometheusRule.alerts has %s, which is no alert of this chart" $name) }}
{{- end }}
{{- end }}
{{- toYaml (dict "groups" $groups) }}
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
