package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MinPacket is the least max_allowed_packet. The largest body of a single item is 9 MiB, and its
// text may double when quotes and backslashes in it are escaped: 18 MiB. 32 MiB leaves room for the
// rest of the statement; MySQL's default is 64 MiB. Batches are cut into statements below it.
const MinPacket = 32 << 20

// ServerRules loosen CheckServer.
type ServerRules struct {
	// AcceptWeakDurability turns the refusal of settings under which a commit may be lost in a
	// crash into a warning. For tests and throw-away databases.
	AcceptWeakDurability bool
}

// Server is what CheckServer found.
type Server struct {
	Version  string    // as the server says it, such as 8.4.3
	Warnings []Finding // settings that are wrong but bearable
}

// Finding is one setting that is not as it must be.
type Finding struct {
	Setting, Value, Want, Why string
	durability                bool
}

// Durability says that the setting decides whether commits outlive a crash; see [ServerRules].
func (f Finding) Durability() bool { return f.durability }

func (f Finding) String() string {
	return fmt.Sprintf("%s is %q, want %s: %s", f.Setting, f.Value, f.Want, f.Why)
}

// ServerError lists the settings for which CheckServer refuses a server.
type ServerError struct {
	Version string
	Refused []Finding
}

func (e *ServerError) Error() string {
	lines := []string{fmt.Sprintf("MySQL %s cannot be used as it is set:", e.Version)}
	for _, f := range e.Refused {
		lines = append(lines, "  "+f.String())
	}
	return strings.Join(lines, "\n")
}

// CheckServer looks at the version and settings of the server behind db, as its sessions see them,
// and refuses, by name, those under which Orbit would lose or garble what it accepted.
func CheckServer(ctx context.Context, db Querier, rules ServerRules) (Server, error) {
	version, err := serverVersion(ctx, db)
	if err != nil {
		return Server{Version: version}, err
	}
	server := Server{Version: version}
	values, err := serverSettings(ctx, db)
	if err != nil {
		return server, err
	}
	var refused []Finding
	for _, setting := range settings {
		finding, wrong := setting.judge(values)
		switch {
		case !wrong:
		case setting.severity == warn, setting.severity == durability && rules.AcceptWeakDurability:
			server.Warnings = append(server.Warnings, finding)
		default:
			refused = append(refused, finding)
		}
	}
	if len(refused) > 0 {
		return server, &ServerError{Version: version, Refused: refused}
	}
	return server, nil
}

type severity int

const (
	refuse severity = iota
	durability
	warn
)

type setting struct {
	name     string
	want     string
	why      string
	severity severity
	good     func(value string, all map[string]string) bool
}

func equals(want string) func(string, map[string]string) bool {
	return func(value string, _ map[string]string) bool { return strings.EqualFold(value, want) }
}

var settings = []setting{
	{"sql_mode", "STRICT_TRANS_TABLES or STRICT_ALL_TABLES in it", "otherwise values that do not fit are cut without an error", refuse,
		func(value string, _ map[string]string) bool {
			return strings.Contains(value, "STRICT_TRANS_TABLES") || strings.Contains(value, "STRICT_ALL_TABLES")
		}},
	{"time_zone", "+00:00", "instants are kept in UTC and decided by the database's clock", refuse, equals("+00:00")},
	{"transaction_isolation", "READ-COMMITTED", "the locking of every transaction is built on it", refuse, equals("READ-COMMITTED")},
	{"autocommit", "1", "single statements would never commit", refuse, equals("1")},
	{"binlog_format", "ROW, where there is a binary log", "READ COMMITTED cannot be replicated by statement", refuse,
		func(value string, all map[string]string) bool {
			return all["log_bin"] != "1" || value == "" || value == "ROW"
		}},
	{"max_allowed_packet", fmt.Sprintf("at least %d", MinPacket), "the largest accepted body (9 MiB) must fit a statement after escaping", refuse,
		func(value string, _ map[string]string) bool {
			bytes, err := strconv.ParseInt(value, 10, 64)
			return err == nil && bytes >= MinPacket
		}},
	{"innodb_flush_log_at_trx_commit", "1", "otherwise an accepted task may be gone after a crash of the server", durability, equals("1")},
	{"sync_binlog", "1, where there is a binary log", "otherwise the log and the tables may differ after a crash of the server", durability,
		func(value string, all map[string]string) bool { return all["log_bin"] != "1" || value == "1" }},
	{"default_storage_engine", "InnoDB", "Orbit's tables name InnoDB themselves, but tables made by hand beside them would not be transactional", warn, equals("InnoDB")},
}

func (s setting) judge(values map[string]string) (Finding, bool) {
	value := values[s.name]
	return Finding{Setting: s.name, Value: value, Want: s.want, Why: s.why, durability: s.severity == durability}, !s.good(value, values)
}

// serverSettings reads session values, which follow the global ones where the session sets none.
// binlog_format is read apart, for it is on its way out of the server.
func serverSettings(ctx context.Context, db Querier) (map[string]string, error) {
	names := []string{"sql_mode", "time_zone", "transaction_isolation", "autocommit", "log_bin", "max_allowed_packet",
		"innodb_flush_log_at_trx_commit", "sync_binlog", "default_storage_engine"}
	values := make([]string, len(names))
	targets := make([]any, len(names))
	for i := range values {
		targets[i] = &values[i]
	}
	if err := db.QueryRowContext(ctx, "SELECT @@"+strings.Join(names, ", @@")).Scan(targets...); err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	all := map[string]string{}
	for i, name := range names {
		all[name] = values[i]
	}
	var name, format string
	err := db.QueryRowContext(ctx, "SHOW VARIABLES LIKE 'binlog_format'").Scan(&name, &format)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read binlog_format: %w", err)
	}
	all["binlog_format"] = format
	return all, nil
}

// Reach connects and asks the server for one value. Its error says what can be done about a refusal.
func Reach(ctx context.Context, db Querier) error {
	var one int
	if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
		return explain(fmt.Errorf("reach the database: %w", err))
	}
	return nil
}

// serverVersion refuses what is below the floor, 8.4, and what only speaks MySQL's protocol.
func serverVersion(ctx context.Context, db Querier) (string, error) {
	var version, comment string
	if err := db.QueryRowContext(ctx, "SELECT VERSION(), @@version_comment").Scan(&version, &comment); err != nil {
		return "", explain(fmt.Errorf("reach the database: %w", err))
	}
	return version, judgeVersion(version, comment)
}

func judgeVersion(version, comment string) error {
	if strings.Contains(strings.ToLower(version+comment), "mariadb") {
		return &ServerError{version, []Finding{{Setting: "version", Value: version, Want: "MySQL 8.4 or newer", Why: "MariaDB has other locking and no utf8mb4_0900_bin"}}}
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major < 8 || major == 8 && minor < 4 {
		return &ServerError{version, []Finding{{Setting: "version", Value: version, Want: "8.4 or newer", Why: "older servers are not tested"}}}
	}
	return nil
}
