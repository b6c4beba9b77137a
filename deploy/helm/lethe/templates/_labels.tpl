{{/* Names and labels. */}}

{{- define "lethe.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes: a Deployment's selector cannot. */}}
{{- define "lethe.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lethe.labels" -}}
{{ include "lethe.selector" . }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "lethe.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* The Deployments that are enabled. */}}
{{- define "lethe.components" -}}
{{- $names := list -}}
{{- range $name, $worker := .Values.workers -}}
{{- if $worker.enabled -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- if .Values.server.enabled -}}
{{- $names = append $names "server" -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}
