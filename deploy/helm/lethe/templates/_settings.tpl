{{/*
Settings of a process: environment variables, and secrets as files below /etc/lethe.
Each takes the dict that "lethe.effective" returns.
*/}}

{{/* The values of a component: its own `store`, `kafka` and `settings` go before the release's. */}}
{{- define "lethe.effective" -}}
{{- $own := .component -}}
{{- $all := dict -}}
{{- range $part := list "store" "kafka" "settings" -}}
{{- $values := mergeOverwrite (deepCopy (index $.root.Values $part)) (default dict (index $own $part)) -}}
{{- $_ := set $all $part $values -}}
{{- end -}}
{{- $keys := dict -}}
{{- range $name := splitList " " (include "lethe.keys" .name) | compact -}}
{{- $_ := set $keys $name (index $.root.Values.keys $name) -}}
{{- end -}}
{{- if and .root.Values.rowFiles.credentialsSecret (has .name (list "erasures" "server")) -}}
{{- $_ := set $keys "rowKeysUrl" .root.Values.keys.rowKeysUrl -}}
{{- end -}}
{{- $_ := set $all "keys" $keys -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The keys that a process needs. */}}
{{- define "lethe.keys" -}}
{{- get (dict
  "deletions" "seal signing trusted requests rowKeysUrl"
  "refresh" "rowKeysUrl"
  "erasures" "seal signing trusted requests requestSigning"
  "intake" "requestSigning"
  "server" "trusted requestSigning"
  "refresh-due" ""
  "check" "seal signing trusted rowKeysUrl"
) . -}}
{{- end -}}

{{/* The files: variable -> directory, secret and key. One directory each, so that all may be named alike. */}}
{{- define "lethe.files" -}}
{{- $files := dict -}}
{{- $wanted := list
  (list "LETHE_REDIS_PASSWORD_FILE" "store-password" .store.passwordSecret)
  (list "LETHE_REDIS_CA_FILE" "store-ca" .store.caSecret)
  (list "LETHE_KAFKA_SASL_PASSWORD_FILE" "kafka-password" .kafka.passwordSecret)
  (list "LETHE_KAFKA_CA_FILE" "kafka-ca" .kafka.caSecret)
  (list "LETHE_SEAL_KEY_FILE" "seal" (default dict .keys.seal))
  (list "LETHE_SIGNING_KEY" "signing" (default dict .keys.signing))
  (list "LETHE_TRUSTED_KEYS" "trusted" (default dict .keys.trusted))
  (list "LETHE_REQUEST_KEYS" "requests" (default dict .keys.requests))
  (list "LETHE_REQUEST_SIGNING_KEY" "request-signing" (default dict .keys.requestSigning))
  (list "LETHE_SERVER_KEYS" "server-keys" (default dict .serverKeys))
  (list "LETHE_OPENDSR" "opendsr" (default dict .opendsr))
-}}
{{- range $each := list (list "REDIS" "store" .store.clientCertificateSecret) (list "KAFKA" "kafka" .kafka.clientCertificateSecret) (list "SERVER" "server" .serverTls) -}}
{{- $secret := index $each 2 -}}
{{- $directory := printf "%s-client" (index $each 1) -}}
{{- $wanted = append $wanted (list (printf "LETHE_%s_CERT_FILE" (index $each 0)) $directory (dict "name" $secret "key" "tls.crt")) -}}
{{- $wanted = append $wanted (list (printf "LETHE_%s_KEY_FILE" (index $each 0)) $directory (dict "name" $secret "key" "tls.key")) -}}
{{- end -}}
{{- range $each := $wanted -}}
{{- $reference := index $each 2 -}}
{{- if $reference.name -}}
{{- $_ := set $files (index $each 0) (dict "directory" (index $each 1) "secret" $reference.name "key" $reference.key) -}}
{{- end -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{- define "lethe.environment" -}}
- { name: LETHE_REDIS_URL, value: {{ required "store.url is missing: the address of Redis or Valkey" .store.url | quote }} }
{{- with .kafka.bootstrapServers }}
- { name: LETHE_KAFKA_BOOTSTRAP_SERVERS, value: {{ . | quote }} }
- { name: LETHE_KAFKA_SECURITY_PROTOCOL, value: {{ $.kafka.securityProtocol }} }
{{- if hasPrefix "SASL_" $.kafka.securityProtocol }}
- { name: LETHE_KAFKA_SASL_MECHANISM, value: {{ $.kafka.saslMechanism }} }
- { name: LETHE_KAFKA_SASL_USERNAME, value: {{ required "kafka.username is missing, which SASL needs" $.kafka.username | quote }} }
{{- end }}
{{- end }}
{{- range $variable, $file := include "lethe.files" . | fromYaml }}
- { name: {{ $variable }}, value: /etc/lethe/{{ $file.directory }}/{{ $file.key }} }
{{- end }}
{{- with .keys.rowKeysUrl }}
{{- if .name }}
- name: LETHE_ROW_KEYS_URL
  valueFrom: { secretKeyRef: { name: {{ .name }}, key: {{ .key }} } }
{{- end }}
{{- end }}
{{- range $variable, $value := .settings }}
- { name: {{ $variable }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end -}}

{{/* What reaches rows in files, for a process that needs rows: takes `root` and its `name`. */}}
{{- define "lethe.rowFiles" -}}
{{- $needed := has .name (list "deletions" "refresh" "erasures" "server" "check") -}}
{{- with .root.Values.rowFiles.credentialsSecret -}}
{{- if $needed -}}
envFrom:
  - secretRef: { name: {{ . }} }
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lethe.mounts" -}}
- { name: tmp, mountPath: /tmp }
- { name: data, mountPath: /var/lib/lethe }
{{- range $directory, $keys := include "lethe.directories" . | fromYaml }}
- { name: {{ $directory }}, mountPath: /etc/lethe/{{ $directory }}, readOnly: true }
{{- end }}
{{- end -}}

{{- define "lethe.volumes" -}}
- { name: tmp, emptyDir: {} }
- { name: data, emptyDir: {} }
{{- range $directory, $content := include "lethe.directories" . | fromYaml }}
- name: {{ $directory }}
  secret:
    secretName: {{ $content.secret }}
    # Root's, and readable by the group of the process alone (fsGroup).
    defaultMode: 0440
    items:
    {{- range $content.keys }}
      - { key: {{ . | quote }}, path: {{ . | quote }} }
    {{- end }}
{{- end }}
{{- end -}}

{{/* The files by directory: a client certificate and its key share one. */}}
{{- define "lethe.directories" -}}
{{- $directories := dict -}}
{{- range $variable, $file := include "lethe.files" . | fromYaml -}}
{{- $known := default (dict "keys" list) (index $directories $file.directory) -}}
{{- $_ := set $directories $file.directory (dict "secret" $file.secret "keys" (append $known.keys $file.key)) -}}
{{- end -}}
{{- toYaml $directories -}}
{{- end -}}
