{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Secret with the serving certificate, as it is mounted into the Pod. There is none with certificates.mode=self. */ -}}
{{- define "heirloom.certificateSecretName" -}}
{{- if eq .Values.certificates.mode "cert-manager" }}
{{- include "heirloom.webhookName" . }}-cert
{{- else }}
{{- .Values.certificates.provided.secretName }}
{{- end }}
{{- end }}

{{- /* Secret with the CA and the serving certificate of certificates.mode=self. The program creates it. */ -}}
{{- define "heirloom.authoritySecretName" -}}
{{- include "heirloom.webhookName" . }}-authority
{{- end }}

{{- /* The CA's Certificate and its Issuer with certificates.mode=cert-manager. */ -}}
{{- define "heirloom.caName" -}}
{{- include "heirloom.webhookName" . }}-ca
{{- end }}

{{- /* What the serving certificate is for, as a list in YAML: the Service, and the hosts of URLs. */ -}}
{{- define "heirloom.certificateHosts" -}}
{{- $service := printf "%s.%s.svc" (include "heirloom.webhookName" .) .Release.Namespace }}
- {{ $service }}
- {{ $service }}.cluster.local
{{- range list .Values.webhooks.url .Values.workloadClusters.webhookURL | compact | uniq }}
- {{ (urlParse .).hostname | trimPrefix "[" | trimSuffix "]" | quote }}
{{- end }}
{{- end }}

{{- /* Fails on values about certificates that are valid each, but not together. */ -}}
{{- define "heirloom.validateCertificates" -}}
{{- $certificates := .Values.certificates }}
{{- if eq $certificates.mode "provided" }}
{{- if not $certificates.provided.caBundle }}
{{- fail "certificates.mode=provided needs certificates.provided.caBundle: CA certificates in PEM, as base64" }}
{{- end }}
{{- if not (contains "-----BEGIN CERTIFICATE-----" ($certificates.provided.caBundle | nospace | b64dec)) }}
{{- fail "certificates.provided.caBundle must be CA certificates in PEM, as base64" }}
{{- end }}
{{- if and .Values.deployment.enabled (not $certificates.provided.secretName) }}
{{- fail "certificates.mode=provided needs certificates.provided.secretName: the serving certificate" }}
{{- end }}
{{- else }}
{{- if or $certificates.provided.caBundle $certificates.provided.secretName }}
{{- fail (printf "certificates.provided is for certificates.mode=provided, not for %s" $certificates.mode) }}
{{- end }}
{{- end }}
{{- if and (eq $certificates.mode "cert-manager") .Values.webhooks.url }}
{{- fail "webhooks.url needs certificates.mode=self or provided: the chart's Certificate is for its Service only" }}
{{- end }}
{{- if eq $certificates.mode "self" }}
{{- range include "heirloom.certificateHosts" . | fromYamlArray }}
{{- if regexMatch "^[0-9.]+$|:" . }}
{{- fail (printf "certificates.mode=self makes certificates for host names only, not for the address %s of a URL" .) }}
{{- end }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" .) }}
{{- fail (printf "certificates.mode=self makes certificates for host names in lower case only, not for the host %s of a URL" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (ne $certificates.mode "cert-manager") $certificates.certManager.duration }}
{{- fail (printf "certificates.certManager.duration is for certificates.mode=cert-manager, not for %s" $certificates.mode) }}
{{- end }}
{{- if and (ne $certificates.mode "cert-manager") $certificates.certManager.issuerRef }}
{{- fail (printf "certificates.certManager.issuerRef is for certificates.mode=cert-manager, not for %s" $certificates.mode) }}
{{- end }}
{{- end }}
