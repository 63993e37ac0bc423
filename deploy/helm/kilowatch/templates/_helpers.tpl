{{- define "kilowatch.labels" -}}
app.kubernetes.io/name: kilowatch
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "kilowatch.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "kilowatch.broker" -}}
{{- if .Values.broker.enabled -}}
{{ .Release.Name }}-broker
{{- else -}}
{{ required "broker.host: name your broker, or set broker.enabled" .Values.broker.host }}
{{- end -}}
{{- end }}

{{- /* The sections that collectors and the aggregator share. */ -}}
{{- define "kilowatch.settings" -}}
cluster = {{ .Values.cluster | quote }}
[broker]
host = {{ include "kilowatch.broker" . | quote }}
port = {{ .Values.broker.port }}
tls = {{ and .Values.broker.tls (not .Values.broker.enabled) }}
username = {{ .Values.broker.username | quote }}
password_file = "/etc/kilowatch/secret/password"
{{- end }}

{{- define "kilowatch.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
