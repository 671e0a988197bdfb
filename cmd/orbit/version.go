package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/orbit-run/orbit/schema"
)

// version is set when a release is linked: -ldflags "-X main.version=1.2.3".
var version string

type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Schema  int64  `json:"schema"` // the migration this program brings a database to
}

func thisBuild() buildInfo {
	build := buildInfo{Version: version, Go: runtime.Version(), Schema: schema.Target()}
	if info, ok := debug.ReadBuildInfo(); ok {
		build.Version = cmp.Or(build.Version, strings.TrimPrefix(info.Main.Version, "v"))
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				build.Commit = s.Value
			}
		}
	}
	if build.Version == "" || build.Version == "(devel)" {
		build.Version = "0.0.0-dev"
	}
	return build
}

func (b buildInfo) program() string { return "orbit " + b.Version }

type versionCommand struct{}

func (versionCommand) Run(p *printer) error {
	build := thisBuild()
	return p.one(build, [][]string{
		{"orbit", build.Version},
		{"commit", build.Commit},
		{"go", build.Go},
		{"schema", formatInt(build.Schema)},
	})
}
