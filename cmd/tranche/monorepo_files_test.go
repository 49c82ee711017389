package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
)

// The monorepo of the benchmark has a path for each of a thousand applications. Every
// tenth is plain YAML, and every tenth a kustomization with a plan. Ten bases hold what
// the kustomizations have in common.
const (
	monorepoBases = 10
	filesPerPath  = 20
)

// The benchmark asserts the same counts for each number of paths, from 20 on.
var (
	monorepoPaths      = flag.Int("paths", 1000, "number of paths and GitSources of BenchmarkMonorepo")
	monorepoNamespaces = flag.Int("namespaces", 10, "number of namespaces that the GitSources of BenchmarkMonorepo share")
	profileDir         = flag.String("profiles", "", "folder for CPU profiles of the controller in each phase of BenchmarkMonorepo")
)

// middle is the path in the middle of the queue.
func middle() int { return *monorepoPaths / 20 * 10 }

func appName(i int) string { return fmt.Sprintf("app-%04d", i) }
func appPath(i int) string { return "apps/" + appName(i) }

func isPlainYAML(i int) bool { return i%10 == 9 }
func hasPlan(i int) bool     { return i%10 == 5 }

// monorepoFiles are always the same.
func monorepoFiles() map[string]string {
	random := rand.New(rand.NewPCG(5, 20_000))
	files := map[string]string{"README.md": "# All that we run\n"}
	for group := range monorepoBases {
		addUnder(files, fmt.Sprintf("base/group-%d", group), baseFiles(group))
	}
	for i := range *monorepoPaths {
		app := kustomizedApp(i, random)
		if isPlainYAML(i) {
			app = plainApp(i, random)
		}
		for n := 0; len(app) < filesPerPath; n++ { // files that no rendering reads
			app[fmt.Sprintf("src/part%02d.go", n)] = fmt.Sprintf("package main\n\n// %s\nconst part%02d = %q\n", appName(i), n, words(random, 120))
		}
		addUnder(files, appPath(i), app)
	}
	return files
}

func addUnder(files map[string]string, dir string, more map[string]string) {
	for name, content := range more {
		files[path.Join(dir, name)] = content
	}
}

// words is text that does not compress to nothing.
func words(random *rand.Rand, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%06x", random.IntN(1<<24))
	}
	return strings.Join(list, " ")
}

func baseFiles(group int) map[string]string {
	return map[string]string{
		"kustomization.yaml":  "resources: [deployment.yaml, service.yaml, serviceaccount.yaml]\n",
		"deployment.yaml":     deploymentYAML("web", group),
		"service.yaml":        serviceYAML("web"),
		"serviceaccount.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n",
	}
}

// deploymentYAML has no replicas: what is measured is not how pods start.
func deploymentYAML(name string, group int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 0
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers:
      - name: web
        image: registry.example.org/group-%[2]d:v1
        ports: [{containerPort: 8080, name: http}]
        readinessProbe: {httpGet: {path: /ready, port: http}}
        volumeMounts: [{name: config, mountPath: /etc/web}]
      volumes: [{name: config, configMap: {name: config}}]
`, name, group)
}

func serviceYAML(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %[1]s}\nspec:\n  selector: {app: %[1]s}\n  ports: [{port: 80, "+
		"targetPort: http}]\n", name)
}

func kustomizedApp(i int, random *rand.Rand) map[string]string {
	name, group := appName(i), i%monorepoBases
	files := map[string]string{
		"README.md": "# " + name + "\n",
		"patches/resources.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: web
        resources: {requests: {cpu: %dm, memory: 64Mi}}
`, 50+random.IntN(450)),
		"patches/env.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: web
        env: [{name: TEAM, value: team-%d}]
`, random.IntN(40)),
	}
	var config []string
	for n := range 8 {
		file := fmt.Sprintf("config/%d.properties", n)
		files[file] = fmt.Sprintf("key.%d=%s\n", n, words(random, 40))
		config = append(config, file)
	}
	resources := fmt.Sprintf("../../base/group-%d", group)
	if hasPlan(i) {
		resources += ", release.yaml"
		files["release.yaml"] = fmt.Sprintf(`apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: %s-web}
  strategy:
    steps: [{replicas: 20%%}, {replicas: 100%%}]
`, name)
	}
	files["kustomization.yaml"] = fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namePrefix: %[1]s-
resources: [%[2]s]
labels:
- pairs: {app: %[1]s}
  includeSelectors: true
configMapGenerator:
- name: config
  files: [%[3]s]
patches:
- path: patches/resources.yaml
- path: patches/env.yaml
images:
- {name: registry.example.org/group-%[4]d, newTag: v1}
`, name, resources, strings.Join(config, ", "), group)
	return files
}

func plainApp(i int, random *rand.Rand) map[string]string {
	name := appName(i)
	return map[string]string{
		"README.md":       "# " + name + "\n",
		"deployment.yaml": strings.ReplaceAll(deploymentYAML(name, i%monorepoBases), "{name: config}", "{name: "+name+"}"),
		"service.yaml":    serviceYAML(name),
		"config.yaml":     fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %s}\n", name, words(random, 200)),
	}
}
