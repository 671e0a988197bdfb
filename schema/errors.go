package schema

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// DirtyError: a step was begun and did not end, and its table is neither what the step starts from
// nor what it leaves. Nothing was changed.
type DirtyError struct {
	Version           int64
	Name, Table       string
	Begun             time.Time
	Is, Before, After []string
}

func (e *DirtyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "migration step %05d_%s was begun at %s and did not end, and table %s is neither what the step starts from nor what it leaves.\n",
		e.Version, e.Name, e.Begun.UTC().Format(time.RFC3339), e.Table)
	fmt.Fprintf(&b, "Compared with what the step leaves:\n%s", indent(differences(e.Is, e.After)))
	if len(e.Before) == 0 {
		b.WriteString("Before the step there is no such table.\n")
	} else {
		fmt.Fprintf(&b, "Compared with what the step starts from:\n%s", indent(differences(e.Is, e.Before)))
	}
	fmt.Fprintf(&b, "Nothing was changed. What to do:\n"+
		"  1. make sure that no other program changes this schema, and take a backup;\n"+
		"  2. bring %s to one of the two states above by hand (ALTER TABLE, or, if it holds nothing, DROP TABLE);\n"+
		"  3. run `orbit migrate up` again: it compares once more, then runs the step or records it as done.\n"+
		"Do not edit %s or %s: no mark is cleared without that comparison.", e.Table, runsTable, versionTable)
	return b.String()
}

// ForeignTableError: the step makes a table, and one of that name is there already and is another.
// Nothing was changed.
type ForeignTableError struct {
	Version     int64
	Name, Table string
	Is, After   []string
}

func (e *ForeignTableError) Error() string {
	return fmt.Sprintf("migration step %05d_%s makes table %s, but a table of that name is there and is not Orbit's:\n%s"+
		"Nothing was changed. Give Orbit a schema of its own, or rename that table, and run `orbit migrate up` again.",
		e.Version, e.Name, e.Table, indent(differences(e.Is, e.After)))
}

// ChangedError: a step was applied with a text that is not this program's. Nothing was changed.
type ChangedError struct {
	Version        int64
	Name           string
	Applied, Known []byte
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("migration step %05d_%s was applied to this database with another text (SHA-256 %s; this program's is %s). "+
		"Applied steps never change: the database was migrated by a program that is not a release, or this one is not. "+
		"Nothing was changed. Use the program that migrated it, or an empty database.",
		e.Version, e.Name, hex.EncodeToString(e.Applied)[:12], hex.EncodeToString(e.Known)[:12])
}

func indent(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("    " + line + "\n")
	}
	return b.String()
}

// Numbers of MySQL errors that a migrator meets and can do something about.
const (
	erDatabaseAccessDenied = 1044
	erAccessDenied         = 1045
	erUnknownDatabase      = 1049
	erTableAccessDenied    = 1142
	erLockWaitTimeout      = 1205
	erSpecificAccessDenied = 1227
	erReadOnly             = 1290
	erTriggerNeedsSuper    = 1419
)

var advice = map[uint16]string{
	erDatabaseAccessDenied: "the account has no rights on this schema, or there is no such schema",
	erAccessDenied:         "the server refuses this user or password",
	erUnknownDatabase:      "make the schema first: CREATE DATABASE … CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin",
	erTableAccessDenied:    "the migrating account needs SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES and TRIGGER on the schema",
	erLockWaitTimeout:      "a long transaction holds the table; end it (performance_schema.metadata_locks shows who) and run `orbit migrate up` again",
	erSpecificAccessDenied: "the migrating account lacks the privilege that the message names",
	erReadOnly:             "the server is read-only: point the DSN at the primary",
	erTriggerNeedsSuper: "the server's binary log is on and this account has no SUPER, so MySQL refuses it triggers (error 1419). " +
		"Set log_bin_trust_function_creators=1 on the server (SET PERSIST log_bin_trust_function_creators = 1, or in its configuration, " +
		"or in the parameter group of a managed service) and run `orbit migrate up` again: it goes on where it stopped. " +
		"Orbit's triggers only refuse UPDATE of history and are safe to replicate",
}

// explain adds to a MySQL error what can be done about it.
func explain(err error) error {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		if what, ok := advice[refused.Number]; ok {
			return fmt.Errorf("%w\n%s", err, what)
		}
	}
	return err
}
