{{/*
The values. One that a release does not have is that of this chart: with helm upgrade
--reuse-values a release has only the values of the chart that it was installed from.
*/}}
{{- define "tranche.values" -}}
{{- $values := deepCopy (merge (dict) .Values) -}}
{{- range $key, $default := .Files.Get "files/values.yaml" | fromYaml -}}
{{- if not (hasKey $values $key) -}}
{{- $_ := set $values $key $default -}}
{{- end -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{/* The account as admission policies name it. */}}
{{- define "tranche.account" -}}
{{- $v := include "tranche.values" . | fromYaml -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ $v.serviceAccount.name }}
{{- end -}}

{{/* Labels of all objects. */}}
{{- define "tranche.labels" -}}
{{- $v := include "tranche.values" . | fromYaml -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- toYaml (merge $own $v.commonLabels) -}}
{{- end -}}

{{/* The same with the name by which Services, monitors and `tranche uninstall` select. */}}
{{- define "tranche.named" -}}
{{- toYaml (merge (dict "app.kubernetes.io/name" "tranche") (include "tranche.labels" . | fromYaml)) -}}
{{- end -}}

{{/* The image of the controller. */}}
{{- define "tranche.image" -}}
{{- $image := (include "tranche.values" . | fromYaml).image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/*
The objects of config, as files of this chart. Namespace, account and labels are those of the release.
Arguments: root, glob; annotations and labels of the objects.
*/}}
{{- define "tranche.objects" -}}
{{- $root := .root -}}
{{- $v := include "tranche.values" $root | fromYaml -}}
{{- $labels := include "tranche.labels" $root | fromYaml -}}
{{- $account := include "tranche.account" $root -}}
{{- $found := false -}}
{{- range $path, $_ := $root.Files.Glob .glob -}}
{{- $found = true -}}
{{- $text := $root.Files.Get $path | replace "system:serviceaccount:tranche-system:tranche-controller" $account -}}
{{- range $document := regexSplit "(?m)^---$" ($text | replace "tranche-system" $root.Release.Namespace) -1 -}}
{{- $object := fromYaml $document -}}
{{- if $object.Error -}}{{- fail (printf "%s: %s" $path $object.Error) -}}{{- end -}}
{{- if $object -}}
{{- $meta := $object.metadata -}}
{{- $_ := set $meta "labels" (merge (dict) ($meta.labels | default dict) ($.labels | default dict) $labels) -}}
{{- if $.annotations -}}
{{- $_ := set $meta "annotations" (merge (dict) $.annotations ($meta.annotations | default dict)) -}}
{{- end -}}
{{- range $object.subjects -}}
{{- if eq .name "tranche-controller" -}}
{{- $_ := set . "name" $v.serviceAccount.name -}}
{{- end -}}
{{- end }}
---
{{ toYaml $object }}
{{ end -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "the chart has no %s: package it with `make chart`, or install it from a folder that has all its files" .glob) -}}
{{- end -}}
{{- end -}}

{{/* The arguments that config/tenants adds. */}}
{{- define "tranche.tenants" -}}
{{- $args := list -}}
{{- range (.Files.Get "files/tenants/kustomization.yaml" | fromYaml).patches -}}
{{- range fromYamlArray .patch -}}
{{- if not (and (eq .op "add") (eq .path "/spec/template/spec/containers/0/args/-")) -}}
{{- fail (printf "config/tenants: the chart does not know %s of %s" .op .path) -}}
{{- end -}}
{{- $args = append $args .value -}}
{{- end -}}
{{- end -}}
{{- if not $args -}}
{{- fail "the chart has no files/tenants/kustomization.yaml" -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{/*
The controllers, as a list below the key list: that for all sources, and one for each shard. The first works for what no shard does.
*/}}
{{- define "tranche.controllers" -}}
{{- $v := include "tranche.values" . | fromYaml -}}
list:
- name: tranche-controller
  labels: {app.kubernetes.io/name: tranche}
  selector: {{ if $v.shards }}{{ printf "shard notin (%s)" (join "," (sortAlpha $v.shards)) | quote }}{{ else }}""{{ end }}
  webhook: {{ $v.webhook.enabled }}
{{- range $v.shards }}
- name: tranche-controller-{{ . }}
  labels: {app.kubernetes.io/name: tranche-shard, tranche.dev/shard: {{ . | quote }}}
  selector: "shard={{ . }}"
  webhook: false
{{- end }}
{{- end -}}
