package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/go-sql-driver/mysql"
	"go.yaml.in/yaml/v3"
)

// A setting is a flag that has an environment variable. The file knows it by the flag's name with underscores: flag
// --drain-delay, variable ORBIT_DRAIN_DELAY, key drain_delay. A flag wins over the environment, the environment over the
// file, the file over the default. An empty variable is one that is not set. A key or an ORBIT_ variable that is no setting is
// an error.

type configFlag string

// settingsFile resolves settings from the file that --config or ORBIT_CONFIG names.
type settingsFile struct {
	config *configFlag
	loaded bool
	values map[string]string
	err    error
}

// Validate is where a bad file is reported, whether or not the command has a setting that would have been looked for in it.
func (f *settingsFile) Validate(app *kong.Application) error {
	f.load(app, string(*f.config))
	return f.err
}

func (f *settingsFile) Resolve(command *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if len(flag.Envs) == 0 || flag.Name == "config" || fromEnvironment(flag) {
		return nil, nil
	}
	f.load(command.Model, f.name(command))
	if value, ok := f.values[settingKey(flag)]; ok {
		return value, nil
	}
	return nil, nil
}

// name is the file's before flags are applied.
func (f *settingsFile) name(command *kong.Context) string {
	for _, flag := range command.Model.Flags {
		if flag.Name == "config" {
			name, _ := command.FlagValue(flag).(configFlag)
			return string(name)
		}
	}
	return ""
}

func (f *settingsFile) load(app *kong.Application, name string) {
	if f.loaded {
		return
	}
	f.loaded = true
	if name == "" {
		return
	}
	text, err := os.ReadFile(name)
	if err != nil {
		f.err = err
		return
	}
	if f.values, err = parseSettings(text, settingFlags(app)); err != nil {
		f.err = fmt.Errorf("%s: %w", name, err)
	}
}

func settingKey(flag *kong.Flag) string { return strings.ReplaceAll(flag.Name, "-", "_") }

func fromEnvironment(flag *kong.Flag) bool {
	return slices.ContainsFunc(flag.Envs, func(name string) bool {
		_, set := os.LookupEnv(name)
		return set
	})
}

// parseSettings reads a flat YAML mapping of known keys to scalars or lists of scalars.
func parseSettings(text []byte, known map[string]*kong.Flag) (map[string]string, error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, node := range nodes {
		if known[key] == nil {
			return nil, fmt.Errorf("line %d: %q is not a setting%s", node.Line, key, didYouMean(nearest(key, known)))
		}
		switch node.Kind {
		case yaml.ScalarNode:
			values[key] = node.Value
		case yaml.SequenceNode:
			var items []string
			for _, item := range node.Content {
				if item.Kind != yaml.ScalarNode {
					return nil, fmt.Errorf("line %d: %s: want a list of plain values", item.Line, key)
				}
				items = append(items, item.Value)
			}
			values[key] = strings.Join(items, ",")
		default:
			return nil, fmt.Errorf("line %d: %s: want a plain value or a list of them", node.Line, key)
		}
	}
	return values, nil
}

// settingFlags lists every setting of every command by its key in the file.
func settingFlags(app *kong.Application) map[string]*kong.Flag {
	known := map[string]*kong.Flag{}
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && len(flag.Envs) > 0 && flag.Name != "config" {
			known[settingKey(flag)] = flag
		}
		return next(nil)
	})
	return known
}

// nearest is the known key that was probably meant, or none.
func nearest(key string, known map[string]*kong.Flag) string {
	best, distance := "", len(key)/3+1
	for name := range known {
		if d := editDistance(key, name); d < distance || d == distance && name < best {
			best, distance = name, d
		}
	}
	return best
}

func didYouMean(name string) string {
	if name == "" {
		return ""
	}
	return "; did you mean " + name + "?"
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitution := diagonal
			if a[i] != b[j] {
				substitution++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, diagonal+1, substitution)
		}
	}
	return row[len(b)]
}

// Variables with our prefix that are not for this program: of the test suite, of the scripts that bring a MySQL, and
// those that Kubernetes sets in every container beside a service named orbit.
var foreignVariable = regexp.MustCompile(`^ORBIT_(TEST_.*|MYSQL_.*|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_.*)?)$`)

// dropEmptyVariables makes an empty variable one that is not set: scripts and compose files cannot always leave one out.
func dropEmptyVariables() {
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "ORBIT_") && value == "" {
			_ = os.Unsetenv(name) // nothing to do about a name that the system does not take
		}
	}
}

func checkEnvironment(app *kong.Application, environ []string) error {
	known := settingFlags(app)
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "ORBIT_") || name == "ORBIT_CONFIG" {
			continue
		}
		key := strings.ToLower(strings.TrimPrefix(name, "ORBIT_"))
		if known[key] == nil && !foreignVariable.MatchString(name) {
			meant := nearest(key, known)
			if meant != "" {
				meant = known[meant].Envs[0]
			}
			unknown = append(unknown, fmt.Sprintf("environment: %s is not a setting%s", name, didYouMean(meant)))
		}
	}
	slices.Sort(unknown)
	if len(unknown) == 0 {
		return nil
	}
	return errors.New(strings.Join(unknown, "\n"))
}

// databaseSettings says where the database is.
type databaseSettings struct {
	DSN     string `name:"dsn" env:"ORBIT_DSN" secret:"dsn" placeholder:"DSN" help:"The database: user:password@tcp(host:3306)/orbit."`
	DSNFile string `name:"dsn-file" env:"ORBIT_DSN_FILE" type:"path" placeholder:"FILE" help:"File that holds the DSN, so that no process list and no environment shows its password."`
}

func (s databaseSettings) given() bool { return s.DSN != "" || s.DSNFile != "" }

func (s databaseSettings) dsn() (string, error) {
	return secret("dsn", s.DSN, s.DSNFile)
}

// remoteSettings says where the service is and who calls it.
type remoteSettings struct {
	Server  string `env:"ORBIT_SERVER" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The service (${default})."`
	Key     string `env:"ORBIT_KEY" secret:"all" placeholder:"KEY" help:"Credential key, orb_…"`
	KeyFile string `env:"ORBIT_KEY_FILE" type:"path" placeholder:"FILE" help:"File that holds the credential key."`
}

// secret takes a value or the file that holds it, without the newline that editors add.
func secret(name, value, file string) (string, error) {
	switch {
	case value != "" && file != "":
		return "", usagef("both --%s and --%s-file are set; give one", name, name)
	case value != "":
		return value, nil
	case file == "":
		return "", usagef("--%s is missing; set it, ORBIT_%s, or a file that holds it by ORBIT_%s_FILE", name, strings.ToUpper(name), strings.ToUpper(name))
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", usagef("--%s-file: %w", name, err)
	}
	if err != nil {
		return "", err
	}
	if value = strings.TrimRight(string(text), "\r\n"); value == "" {
		return "", usagef("--%s-file: %s is empty", name, file)
	}
	return value, nil
}

// redact shows of a secret no more than an operator needs to recognise it.
func redact(kind, value string) string {
	if value == "" {
		return ""
	}
	if kind != "dsn" {
		return "(redacted)"
	}
	config, err := mysql.ParseDSN(value)
	if err != nil {
		return "(redacted: not a DSN)"
	}
	if config.Passwd != "" {
		config.Passwd = "(redacted)"
	}
	return config.FormatDSN()
}

type settingsCommand struct {
	Print settingsPrintCommand `cmd:"" help:"Print every setting, its value without secrets, and where the value comes from."`
}

type settingsPrintCommand struct {
	databaseSettings
	remoteSettings
	serverSettings
	developmentSettings
}

type settingInEffect struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"` // flag, environment, file or default
}

func (c *settingsPrintCommand) Run(command *kong.Context, file *settingsFile, p *printer) error {
	var all []settingInEffect
	for _, flag := range command.Selected().Flags {
		if len(flag.Envs) == 0 {
			continue
		}
		value := strings.Trim(fmt.Sprint(flag.Target.Interface()), "[]")
		if values, ok := flag.Target.Interface().([]string); ok {
			value = strings.Join(values, ",")
		}
		if kind := flag.Tag.Get("secret"); kind != "" {
			value = redact(kind, value)
		}
		all = append(all, settingInEffect{settingKey(flag), value, settingSource(command, file, flag)})
	}
	slices.SortFunc(all, func(a, b settingInEffect) int { return strings.Compare(a.Key, b.Key) })
	rows := make([][]string, len(all))
	for i, s := range all {
		rows[i] = []string{s.Key, s.Value, s.Source}
	}
	return p.list(all, []string{"SETTING", "VALUE", "SOURCE"}, rows)
}

func settingSource(command *kong.Context, file *settingsFile, flag *kong.Flag) string {
	for _, path := range command.Path {
		if path.Flag == flag && !path.Resolved {
			return "flag"
		}
	}
	if fromEnvironment(flag) {
		return "environment"
	}
	if _, ok := file.values[settingKey(flag)]; ok {
		return "file"
	}
	return "default"
}
