// Package deploy checks the files that operators deploy gateways with, as far as that goes
// without the programs that read them: what they say is well formed, names files and ports
// that there are, and agrees with the Caddyfiles beside it, which Caddy runs.
package deploy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.yaml.in/yaml/v3"

	_ "github.com/llmlimits/caddy-llm-limits"
	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
)

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

// read reads a file of this folder.
func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parse reads the YAML documents of a file, the last of which may be empty.
func parse[T any](t *testing.T, path ...string) (all []T) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, path...)))
	for {
		var doc T
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", filepath.Join(path...), err)
		}
		all = append(all, doc)
	}
}

// waits is how long a gateway with this Caddyfile may take to end.
func waits(t *testing.T, text string) (d time.Duration) {
	t.Helper()
	for _, option := range []string{"shutdown_delay", "grace_period"} {
		m := regexp.MustCompile(`(?m)^\t` + option + ` (\w+)$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", option)
		}
		n, err := time.ParseDuration(m[1])
		if err != nil {
			t.Fatal(err)
		}
		d += n
	}
	return d
}

// object is one of Kubernetes, as far as it is looked at here.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Data       map[string]string
	Spec       struct {
		Replicas     int
		MinAvailable int `yaml:"minAvailable"`
		Selector     struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	Grace      int `yaml:"terminationGracePeriodSeconds"`
	Containers []struct {
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		Env            []struct{ Name string }
		ReadinessProbe struct {
			HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
		} `yaml:"readinessProbe"`
		VolumeMounts []struct {
			Name, MountPath string
		} `yaml:"volumeMounts"`
	}
	Volumes []struct{ Name string }
}

// kubernetes are the objects by kind; there are two network policies.
func kubernetes(t *testing.T) map[string]object {
	t.Helper()
	all := make(map[string]object)
	for _, o := range parse[object](t, "kubernetes", "gateway.yaml") {
		if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" {
			t.Errorf("an object without version, kind or name: %+v", o)
		}
		all[o.Kind] = o
	}
	return all
}

// caddyfiles are those that are deployed.
func caddyfiles(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"docker":     read(t, "docker", "Caddyfile"),
		"kubernetes": kubernetes(t)["ConfigMap"].Data["Caddyfile"],
	}
}

func TestCaddyfilesRun(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(keys, []byte(`{"keys":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REDIS_PASSWORD", "word")
	t.Setenv("OPENAI_API_KEY", "sk-provider")
	for name, text := range caddyfiles(t) {
		t.Run(name, func(t *testing.T) {
			if got := string(caddyfile.Format([]byte(text))); got != text {
				t.Errorf("not formatted; caddy fmt makes it\n%s", got)
			}
			calls, watch := loopback.Address(t), loopback.Address(t)
			text := strings.NewReplacer(
				":8080 {", "http://"+calls+" {", ":8081 {", "http://"+watch+" {", "admin localhost:2019", "admin off",
				"/etc/llm-keys/keys.json", keys, "redis:6379", loopback.Address(t),
				"\tllm {", "\tauto_https off\n\tllm {",
			).Replace(text)
			config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
			if err != nil || slices.ContainsFunc(warnings, func(w caddyconfig.Warning) bool { return !strings.Contains(w.Message, "formatted") }) {
				t.Fatalf("adapting: %v, warnings %v", err, warnings)
			}
			if err := caddy.Load(config, true); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = caddy.Stop() })
			for url, want := range map[string]struct {
				status int
				text   string
			}{
				watch + "/healthz":             {http.StatusOK, ""},
				watch + "/metrics":             {http.StatusOK, "llm_store_outage"},
				calls + "/v1/chat/completions": {http.StatusUnauthorized, "invalid"},
			} {
				resp, err := http.Get("http://" + url)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != want.status || !strings.Contains(string(body), want.text) {
					t.Errorf("%s: %d %v: %.500s", url, resp.StatusCode, err, body)
				}
			}
		})
	}
}

func TestComposeNamesWhatThereIs(t *testing.T) {
	type service struct {
		Image, Build any
		Volumes      []string
		Ports        []string
		Environment  map[string]string
		Security     []string `yaml:"security_opt"`
		Stop         string   `yaml:"stop_grace_period"`
	}
	compose := parse[struct {
		Services map[string]service
		Volumes  map[string]any
	}](t, "docker", "compose.yaml")[0]
	var mounted []string
	for name, s := range compose.Services {
		if image, _ := s.Image.(string); s.Build == nil && !regexp.MustCompile(`:v?\d+\.\d+`).MatchString(image) {
			t.Errorf("%s: image %q is none of a version", name, image)
		}
		if !slices.Contains(s.Security, "no-new-privileges:true") {
			t.Errorf("%s may gain privileges", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %q is open to the network", name, p)
			}
		}
		for _, v := range s.Volumes {
			from, to, _ := strings.Cut(v, ":")
			mounted = append(mounted, strings.TrimSuffix(to, ":ro"))
			if !strings.HasPrefix(from, ".") {
				if _, ok := compose.Volumes[from]; !ok {
					t.Errorf("%s: there is no volume %q", name, from)
				}
				continue
			}
			if _, err := os.Stat(filepath.Join("docker", from)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for v, value := range s.Environment {
			if strings.HasSuffix(v, "KEY") || strings.HasSuffix(v, "PASSWORD") {
				if !regexp.MustCompile(`^\$\{\w+:\?.+\}$`).MatchString(value) {
					t.Errorf("%s: %s is written down, or may be empty", name, v)
				}
			}
		}
	}
	stop, err := time.ParseDuration(compose.Services["gateway"].Stop)
	if most := waits(t, read(t, "docker", "Caddyfile")); err != nil || stop <= most {
		t.Errorf("the gateway is killed after %s (%v), and may take %s", stop, err, most)
	}

	prometheus := parse[struct {
		RuleFiles []string `yaml:"rule_files"`
		Scrape    []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}](t, "prometheus", "prometheus.yml")[0]
	for _, f := range prometheus.RuleFiles {
		if !slices.Contains(mounted, "/etc/prometheus/"+f) {
			t.Errorf("%s is not mounted: %v", f, mounted)
		}
	}
	if got := prometheus.Scrape[0].Static[0].Targets[0]; got != "gateway:8081" {
		t.Errorf("the gateway is watched at %s", got)
	}
	boards := parse[struct {
		Providers []struct{ Options struct{ Path string } }
	}](t, "grafana", "provisioning", "dashboards", "llm-limits.yml")[0]
	if path := boards.Providers[0].Options.Path; !slices.ContainsFunc(mounted, func(m string) bool { return filepath.Dir(m) == path }) {
		t.Errorf("no dashboard is mounted in %s", path)
	}
	sources := parse[struct{ Datasources []struct{ URL string } }](t, "grafana", "provisioning", "datasources", "prometheus.yml")[0]
	if got := sources.Datasources[0].URL; got != "http://prometheus:9090" {
		t.Errorf("Grafana asks %s", got)
	}
}

func TestImageIsThatOfThisRepository(t *testing.T) {
	text, mod := read(t, "docker", "Dockerfile"), read(t, "..", "go.mod")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)[1]
	for _, want := range []string{"FROM golang:" + version + "-", "RUN make build\n", "COPY --from=build /src/bin/caddy ", "USER 10001:10001\n", ":8081/healthz"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile does not say %q", want)
		}
	}
	if !strings.Contains(read(t, "..", "Makefile"), "\nbuild: bin/caddy\n") {
		t.Error("make build does not make bin/caddy")
	}
}

func TestKubernetesAgreesWithItself(t *testing.T) {
	all := kubernetes(t)
	text := all["ConfigMap"].Data["Caddyfile"]
	d := all["Deployment"].Spec
	if !strings.Contains(text, "\treplicas "+strconv.Itoa(d.Replicas)+"\n") {
		t.Errorf("the Caddyfile does not say that there are %d replicas", d.Replicas)
	}
	if n := all["PodDisruptionBudget"].Spec.MinAvailable; n < 1 || n >= d.Replicas {
		t.Errorf("%d of %d must be available", n, d.Replicas)
	}
	for _, kind := range []string{"Deployment", "PodDisruptionBudget"} {
		if got := all[kind].Spec.Selector.MatchLabels["app"]; got != d.Template.Metadata.Labels["app"] {
			t.Errorf("%s is of app %q", kind, got)
		}
	}
	if grace, most := time.Duration(d.Template.Spec.Grace)*time.Second, waits(t, text); grace <= most {
		t.Errorf("pods are killed after %s, and may take %s", grace, most)
	}
	c := d.Template.Spec.Containers[0]
	ports := make(map[string]int)
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
		if !strings.Contains(text, "\n:"+strconv.Itoa(p.ContainerPort)+" {") {
			t.Errorf("nothing serves port %d", p.ContainerPort)
		}
	}
	if probe := c.ReadinessProbe.HTTPGet; ports[probe.Port] != 8081 || probe.Path != "/healthz" {
		t.Errorf("the probe is %+v", probe)
	}
	for _, m := range regexp.MustCompile(`\{env\.(\w+)\}`).FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(c.Env, func(e struct{ Name string }) bool { return e.Name == m[1] }) {
			t.Errorf("%s is not in the environment", m[1])
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(d.Template.Spec.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %q", m.Name)
		}
	}
}

func TestUnitWaitsForCallsAndWritesNoSecrets(t *testing.T) {
	text := read(t, "systemd", "llm-limits.conf")
	if m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\w+)$`).FindStringSubmatch(text); m == nil {
		t.Error("no TimeoutStopSec")
	} else if d, err := time.ParseDuration(m[1]); err != nil || d <= 30*time.Second {
		t.Errorf("it waits for %s (%v)", d, err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ExecStart=") && strings.Contains(line, "--environ") {
			t.Errorf("the environment would be written to the journal: %s", line)
		}
	}
}
