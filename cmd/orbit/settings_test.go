package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// inEffect gives what config print shows of each setting.
func inEffect(t *testing.T, args ...string) map[string]settingInEffect {
	t.Helper()
	var all []settingInEffect
	program(append([]string{"config", "print", "-o", "json"}, args...)...).json(t, &all)
	settings := map[string]settingInEffect{}
	for _, s := range all {
		settings[s.Key] = s
	}
	return settings
}

func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := write(t, "orbit.yaml", "listen: file:1\ndrain_delay: 11s\nrate_limit: 5\naccept_weak_durability: true\nroles: [engine]\n")
	t.Setenv("ORBIT_LISTEN", "environment:2")
	t.Setenv("ORBIT_DRAIN_DELAY", "22s")
	t.Setenv("ORBIT_DATABASE_CONNECTIONS", "7")
	got := inEffect(t, "--config", file, "--listen", "flag:3")
	for _, want := range []settingInEffect{
		{"listen", "flag:3", "flag"},
		{"drain_delay", "22s", "environment"},
		{"database_connections", "7", "environment"},
		{"rate_limit", "5", "file"},
		{"accept_weak_durability", "true", "file"},
		{"roles", "engine", "file"},
		{"drain_timeout", "30s", "default"},
		{"server", "http://127.0.0.1:8080", "default"},
	} {
		if got[want.Key] != want {
			t.Errorf("got %+v, want %+v", got[want.Key], want)
		}
	}
}

func TestAnEmptyVariableIsNotSet(t *testing.T) {
	file := write(t, "orbit.yaml", "listen: file:1\n")
	for _, name := range []string{"ORBIT_LISTEN", "ORBIT_KEY_FILE", "ORBIT_DSN_FILE", "ORBIT_CONFIG", "ORBIT_SERVER", "ORBIT_DRAIN_DELAY", "ORBIT_NO_SETTING"} {
		t.Setenv(name, "")
	}
	got := inEffect(t, "--config", file)
	for _, want := range []settingInEffect{
		{"listen", "file:1", "file"},
		{"key_file", "", "default"},
		{"dsn_file", "", "default"},
		{"server", "http://127.0.0.1:8080", "default"},
	} {
		if got[want.Key] != want {
			t.Errorf("got %+v, want %+v", got[want.Key], want)
		}
	}
	if o := program("queue", "list"); o.code != exitUsage || !strings.Contains(o.err, "--key is missing") {
		t.Errorf("no key: exit code %d, %s", o.code, o.err)
	}
}

func TestTheFileMayBeNamedByTheEnvironment(t *testing.T) {
	t.Setenv("ORBIT_CONFIG", write(t, "orbit.yaml", "listen: file:1\n"))
	if got := inEffect(t)["listen"]; got.Value != "file:1" || got.Source != "file" {
		t.Errorf("got %+v", got)
	}
}

func TestUnknownAndMalformedKeysAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"listenn: x\n":           "did you mean listen?",
		"drain-delay: 1s\n":      `"drain-delay" is not a setting`,
		"server:\n  url: x\n":    "want a plain value",
		"roles: [[api]]\n":       "want a list of plain values",
		"listen: a\nlisten: b\n": "already defined",
		"drain_delay: soon\n":    "drain-delay",
		"roles: [api, cook]\n":   "cook",
		"- listen\n":             "cannot unmarshal",
	} {
		o := program("version", "--config", write(t, "orbit.yaml", text))
		if text == "drain_delay: soon\n" || text == "roles: [api, cook]\n" {
			o = program("config", "print", "--config", write(t, "orbit.yaml", text))
		}
		if o.code != exitUsage || !strings.Contains(o.err, want) {
			t.Errorf("%q: exit code %d, %s", text, o.code, o.err)
		}
	}
	if o := program("version", "--config", "/nowhere/orbit.yaml"); o.code != exitUsage {
		t.Errorf("a file that is not there: exit code %d, %s", o.code, o.err)
	}
}

func TestUnknownVariablesAreErrors(t *testing.T) {
	t.Setenv("ORBIT_LISTEM", "x")
	if o := program("version"); o.code != exitUsage || !strings.Contains(o.err, "ORBIT_LISTEM is not a setting; did you mean ORBIT_LISTEN?") {
		t.Errorf("exit code %d, %s", o.code, o.err)
	}
	os.Unsetenv("ORBIT_LISTEM")
	// As Kubernetes sets them beside a service named orbit, and the test suite for itself.
	for _, name := range []string{"ORBIT_SERVICE_HOST", "ORBIT_SERVICE_PORT_HTTP", "ORBIT_PORT", "ORBIT_PORT_8080_TCP_ADDR", "ORBIT_API_SERVICE_PORT", "ORBIT_TEST_X"} {
		t.Setenv(name, "x")
	}
	program("version").want(t, 0)
}

// The file, the environment and the flag know a setting by one name in three spellings, whichever command has it.
func TestSettingsHaveOneName(t *testing.T) {
	var cli commands
	parser, err := newParser(&cli, os.Stdout, os.Stderr, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	known := settingFlags(parser.Model)
	if len(known) < 15 {
		t.Fatalf("only %d settings are found", len(known))
	}
	for key, flag := range known {
		if want := "ORBIT_" + strings.ToUpper(key); len(flag.Envs) != 1 || flag.Envs[0] != want {
			t.Errorf("--%s has variables %v, want %s", flag.Name, flag.Envs, want)
		}
		if foreignVariable.MatchString(flag.Envs[0]) && !strings.HasPrefix(flag.Envs[0], "ORBIT_MYSQL_") {
			t.Errorf("%s would never be missed: it looks like a variable of somebody else", flag.Envs[0])
		}
	}
}

func TestPrintedSettingsHoldNoSecret(t *testing.T) {
	t.Setenv("ORBIT_DSN", "orbit:s3cret@tcp(db.example:3306)/orbit")
	t.Setenv("ORBIT_KEY", "orb_s3cret")
	for _, form := range []string{"table", "json"} {
		o := program("config", "print", "-o", form).want(t, 0)
		if strings.Contains(o.out+o.err, "s3cret") {
			t.Errorf("-o %s shows a secret:\n%s", form, o.out)
		}
	}
	got := inEffect(t)
	if dsn := got["dsn"].Value; !strings.Contains(dsn, "db.example:3306") || !strings.Contains(dsn, "orbit:") {
		t.Errorf("the DSN cannot be recognised: %s", dsn)
	}
	t.Setenv("ORBIT_DSN", "s3cret that is no DSN")
	if o := program("config", "print").want(t, 0); strings.Contains(o.out, "s3cret") {
		t.Errorf("a broken DSN is shown:\n%s", o.out)
	}
}

func TestSecretsComeFromFiles(t *testing.T) {
	file := write(t, "dsn", "user:pw@tcp(db:3306)/orbit\n")
	got, err := databaseSettings{DSNFile: file}.dsn()
	if err != nil || got != "user:pw@tcp(db:3306)/orbit" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, s := range map[string]databaseSettings{
		"both":         {DSN: "x", DSNFile: file},
		"neither":      {},
		"empty file":   {DSNFile: write(t, "empty", "\n")},
		"missing file": {DSNFile: file + "x"},
	} {
		if _, err := s.dsn(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// A variable for the one and a flag for the other are two sources too.
	t.Setenv("ORBIT_DSN", "x")
	if o := program("migrate", "status", "--dsn-file", file); o.code != exitUsage || !strings.Contains(o.err, "give one") {
		t.Errorf("exit code %d, %s", o.code, o.err)
	}
}

func TestCompletionKnowsTheCommands(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if o := program("completion", "-c", shell).want(t, 0); !strings.Contains(o.out, "orbit") {
			t.Errorf("%s: %s", shell, o.out)
		}
	}
	t.Setenv("COMP_LINE", "orbit task su")
	t.Setenv("COMP_POINT", "13")
	if o := program(); !strings.Contains(o.out, "submit") {
		t.Errorf("orbit task su is completed to %q, %s", o.out, o.err)
	}
}
