package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-sql-driver/mysql"
)

func TestSplitEndsStatementsAtEmptyLines(t *testing.T) {
	got := Split("-- a comment; with a semicolon\n\nCREATE TABLE a (\n  b INT COMMENT 'x; y' -- kept\n);\n\n" +
		"CREATE TRIGGER c BEFORE UPDATE ON a FOR EACH ROW BEGIN\n  SET @a = 1;\n  SET @b = 2;\nEND;\r\n")
	want := []string{
		"CREATE TABLE a (\n  b INT COMMENT 'x; y' -- kept\n)",
		"CREATE TRIGGER c BEFORE UPDATE ON a FOR EACH ROW BEGIN\n  SET @a = 1;\n  SET @b = 2;\nEND",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestReadSourcesRefuses(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"a gap": {
			"migrations/00001_a.sql": {Data: []byte("CREATE TABLE a (b INT);\n")},
			"migrations/00003_c.sql": {Data: []byte("CREATE TABLE c (b INT);\n")},
		},
		"two statements": {"migrations/00001_a.sql": {Data: []byte("CREATE TABLE a (b INT);\n\nCREATE TABLE c (b INT);\n")}},
		"none":           {"migrations/00001_a.sql": {Data: []byte("-- nothing\n")}},
		"no name":        {"migrations/00001.sql": {Data: []byte("CREATE TABLE a (b INT);\n")}},
	} {
		if sources, err := ReadSources(files); err == nil {
			t.Errorf("%s: accepted as %v", name, sources)
		}
	}
}

// The files are goose's own form, so that its command line tool can read them too.
func TestMigrationsAreGooseFiles(t *testing.T) {
	steps, err := loadSteps()
	if err != nil {
		t.Fatal(err)
	}
	if steps[runsVersion-1].table != runsTable {
		t.Errorf("step %d makes %s, not the table that migrations are recorded in", runsVersion, steps[runsVersion-1].table)
	}
	for _, s := range steps {
		text, err := migrationFiles.ReadFile("migrations/" + sourceFile(s))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"-- +goose Up\n", "-- +goose NO TRANSACTION\n", "-- +goose StatementBegin\n", s.statement + ";\n-- +goose StatementEnd\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", sourceFile(s), want)
			}
		}
		if slices.Equal(s.before, s.after) {
			t.Errorf("%s: before and after look the same, so a crash in it could not be judged", sourceFile(s))
		}
	}
}

func sourceFile(s step) string {
	return fmt.Sprintf("%05d_%s.sql", s.version, s.name)
}

func TestLockNameFitsAndNamesTheSchema(t *testing.T) {
	if got := lockNameOf("orbit"); got != "orbit_migrate:orbit" {
		t.Errorf("got %q", got)
	}
	long, other := strings.Repeat("x", 64), strings.Repeat("x", 63)+"y"
	for _, name := range []string{lockNameOf(long), lockNameOf("größe")} {
		if len(name) > 64 {
			t.Errorf("%q is %d bytes; GET_LOCK takes 64 characters", name, len(name))
		}
	}
	if lockNameOf(long) == lockNameOf(other) {
		t.Error("two schemas share a lock")
	}
}

func TestSessionConfigOverridesTheDSN(t *testing.T) {
	config, err := sessionConfig("u:p@tcp(db:3306)/orbit?parseTime=false&loc=Local&clientFoundRows=true&multiStatements=true"+
		"&time_zone=%27SYSTEM%27&sql_mode=%27%27&wait_timeout=28800&tls=skip-verify&readTimeout=90s&timeTruncate=1s",
		PoolOptions{LockWait: time.Second, Program: "test"}, waitTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if !config.ParseTime || config.Loc != time.UTC || config.ClientFoundRows || !config.MultiStatements || !config.RejectReadOnly || !config.InterpolateParams {
		t.Errorf("driver settings follow the DSN: %+v", config)
	}
	for name, want := range map[string]string{
		"time_zone": "'+00:00'", "transaction_isolation": "'READ-COMMITTED'", "collation_connection": "utf8mb4_0900_bin",
		"wait_timeout": "60", "innodb_lock_wait_timeout": "1", "sql_mode": sqlMode,
	} {
		if config.Params[name] != want {
			t.Errorf("%s = %s, want %s", name, config.Params[name], want)
		}
	}
	if config.TLSConfig != "skip-verify" || config.ReadTimeout != 90*time.Second {
		t.Errorf("the DSN's own TLS and time-outs are lost: %+v", config)
	}
	if !strings.Contains(config.FormatDSN(), "timeTruncate=1µs") {
		t.Errorf("instants are not truncated to microseconds: %s", config.FormatDSN())
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, try := range map[string]struct {
		dsn     string
		options PoolOptions
	}{
		"no database":    {"u:p@tcp(db:3306)/", PoolOptions{}},
		"no slash":       {"u:p@tcp(db:3306)", PoolOptions{}},
		"half a second":  {"u:p@tcp(db:3306)/orbit", PoolOptions{LockWait: 500 * time.Millisecond}},
		"a second and ½": {"u:p@tcp(db:3306)/orbit", PoolOptions{LockWait: 1500 * time.Millisecond}},
	} {
		if _, err := Open(try.dsn, try.options); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestJudgeVersion(t *testing.T) {
	for version, good := range map[string]bool{
		"8.4.0": true, "8.4.10-log": true, "9.7.4-2": true, "10.0.1": true,
		"8.0.44": false, "8.3.0": false, "5.7.44-log": false, "11.4.2-MariaDB": false, "": false, "unknown": false,
	} {
		if err := judgeVersion(version, ""); (err == nil) != good {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestSettingsAreJudgedByName(t *testing.T) {
	good := map[string]string{
		"sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES", "time_zone": "+00:00", "transaction_isolation": "READ-COMMITTED", "autocommit": "1",
		"log_bin": "1", "binlog_format": "ROW", "max_allowed_packet": "67108864", "innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1",
		"default_storage_engine": "InnoDB",
	}
	judge := func(change map[string]string) (wrong []string) {
		values := map[string]string{}
		for name, value := range good {
			values[name] = value
		}
		for name, value := range change {
			values[name] = value
		}
		for _, s := range settings {
			if _, bad := s.judge(values); bad {
				wrong = append(wrong, s.name)
			}
		}
		return wrong
	}
	if wrong := judge(nil); wrong != nil {
		t.Fatalf("good settings refused: %v", wrong)
	}
	for name, value := range map[string]string{
		"sql_mode": "ANSI", "time_zone": "SYSTEM", "transaction_isolation": "REPEATABLE-READ", "autocommit": "0", "binlog_format": "STATEMENT",
		"max_allowed_packet": "16777216", "innodb_flush_log_at_trx_commit": "2", "sync_binlog": "0", "default_storage_engine": "MyISAM",
	} {
		if wrong := judge(map[string]string{name: value}); !slices.Equal(wrong, []string{name}) {
			t.Errorf("%s=%s: found wrong %v", name, value, wrong)
		}
	}
	if wrong := judge(map[string]string{"log_bin": "0", "sync_binlog": "0", "binlog_format": "STATEMENT"}); wrong != nil {
		t.Errorf("without a binary log its settings do not matter, yet %v", wrong)
	}
}

func TestNormaliseKeepsMeaning(t *testing.T) {
	line := "check ck_x (`state` in (_ascii\\'active\\',_utf8mb4'revoked'))"
	if got, want := normalise(line), "check ck_x (state in ('active','revoked'))"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	comment := "column a int not null comment='the caller\\'s  _ascii\\'x\\' `b`'"
	if got, want := normalise(comment), "column a int not null comment='the caller\\'s _ascii\\'x\\' `b`'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDifferencesAreNeverEmptyForUnequalTables(t *testing.T) {
	got := differences([]string{"a", "b"}, []string{"a", "c"})
	if want := []string{"is:        b", "should be: c"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if len(differences([]string{"a", "b"}, []string{"b", "a"})) == 0 {
		t.Error("another order is not told")
	}
}

func TestExplainNamesTheSettingFor1419(t *testing.T) {
	refused := &mysql.MySQLError{Number: 1419, Message: "You do not have the SUPER privilege and binary logging is enabled"}
	err := explain(refused)
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "log_bin_trust_function_creators") {
		t.Errorf("got %v", err)
	}
}
