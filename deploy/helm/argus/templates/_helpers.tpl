{{- define "argus.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Labels of every object, beside its name and `part-of`; selectors have none of them. */}}
{{- define "argus.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* (list root image): registry/repository@digest, or :tag. */}}
{{- define "argus.image" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $root.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* Of prometheus.url: where the network policy lets the worker out to. */}}
{{- define "argus.prometheusPort" -}}
{{- $url := urlParse .Values.prometheus.url -}}
{{- with regexFind ":[0-9]+$" $url.host }}{{ trimPrefix ":" . }}
{{- else }}{{ ternary 443 80 (eq $url.scheme "https") }}{{ end }}
{{- end }}

{{- define "argus.exporterConfig" -}}
{{ mergeOverwrite (include "argus.exporterDefaults" . | fromYaml) .Values.exporter.config | toYaml }}
{{- end }}

{{- define "argus.l3WorkerConfig" -}}
{{ mergeOverwrite (include "argus.l3WorkerDefaults" . | fromYaml) .Values.l3Worker.config | toYaml }}
{{- end }}
