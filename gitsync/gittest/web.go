package gittest

// Web returns a Deployment web with its plan, in folder deploy, at an image.
func Web(image string) map[string]string {
	return map[string]string{"deploy/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example.org/web:` + image + `"}]}
---
apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {name: web}
  strategy: {steps: [{replicas: 1}, {replicas: 100%}]}
`}
}
