package schema

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Querier is what reading needs: a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Describe reads from information_schema what the current database's tables are: for each table
// its lines of columns (in order), indexes, foreign keys, checks and triggers with everything that
// distinguishes them, comments included. Two tables are equal when their lines are. What a server
// may write differently from release to release (quoting, charset introducers, spaces, statistics,
// counters, definers) is left out. goose's own bookkeeping table is not described.
func Describe(ctx context.Context, db Querier) (map[string][]string, error) {
	return describe(ctx, db, "")
}

// describeTable is Describe for one table; nil means that it does not exist.
func describeTable(ctx context.Context, db Querier, table string) ([]string, error) {
	tables, err := describe(ctx, db, table)
	return tables[table], err
}

// Each query yields a table's name, then the line, ordered as the lines are to stand.
var descriptions = []string{
	`SELECT TABLE_NAME, CONCAT('table ', TABLE_TYPE, ' engine=', COALESCE(ENGINE, ''), ' collation=', COALESCE(TABLE_COLLATION, ''),
	        ' comment=', QUOTE(TABLE_COMMENT))
	   FROM information_schema.TABLES
	  WHERE TABLE_SCHEMA = DATABASE() AND (? = '' OR TABLE_NAME = ?)
	  ORDER BY TABLE_NAME`,
	`SELECT TABLE_NAME, CONCAT('column ', COLUMN_NAME, ' ', COLUMN_TYPE, IF(COLLATION_NAME IS NULL, '', CONCAT(' collation=', COLLATION_NAME)),
	        IF(IS_NULLABLE = 'YES', ' null', ' not null'), IF(COLUMN_DEFAULT IS NULL, '', CONCAT(' default=', QUOTE(COLUMN_DEFAULT))),
	        IF(EXTRA = '', '', CONCAT(' ', LOWER(EXTRA))), IF(GENERATION_EXPRESSION = '', '', CONCAT(' as ', GENERATION_EXPRESSION)),
	        ' comment=', QUOTE(COLUMN_COMMENT))
	   FROM information_schema.COLUMNS
	  WHERE TABLE_SCHEMA = DATABASE() AND (? = '' OR TABLE_NAME = ?)
	  ORDER BY TABLE_NAME, ORDINAL_POSITION`,
	`SELECT TABLE_NAME, CONCAT('index ', INDEX_NAME, IF(NON_UNIQUE = 0, ' unique', ''), ' ', LOWER(INDEX_TYPE), ' (',
	        GROUP_CONCAT(CONCAT(COALESCE(COLUMN_NAME, EXPRESSION), IF(SUB_PART IS NULL, '', CONCAT('(', SUB_PART, ')')), IF(COLLATION = 'D', ' desc', ''))
	          ORDER BY SEQ_IN_INDEX SEPARATOR ', '), ')', IF(MIN(IS_VISIBLE) = 'YES', '', ' invisible'))
	   FROM information_schema.STATISTICS
	  WHERE TABLE_SCHEMA = DATABASE() AND (? = '' OR TABLE_NAME = ?)
	  GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE, INDEX_TYPE
	  ORDER BY TABLE_NAME, INDEX_NAME`,
	`SELECT k.TABLE_NAME, CONCAT('foreign key ', k.CONSTRAINT_NAME, ' (', GROUP_CONCAT(k.COLUMN_NAME ORDER BY k.ORDINAL_POSITION SEPARATOR ', '),
	        ') references ', MIN(k.REFERENCED_TABLE_NAME), ' (', GROUP_CONCAT(k.REFERENCED_COLUMN_NAME ORDER BY k.ORDINAL_POSITION SEPARATOR ', '),
	        ') on update ', REPLACE(MIN(r.UPDATE_RULE), 'RESTRICT', 'NO ACTION'), ' on delete ', REPLACE(MIN(r.DELETE_RULE), 'RESTRICT', 'NO ACTION'))
	   FROM information_schema.KEY_COLUMN_USAGE k
	   JOIN information_schema.REFERENTIAL_CONSTRAINTS r ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME
	        AND r.TABLE_NAME = k.TABLE_NAME
	  WHERE k.TABLE_SCHEMA = DATABASE() AND (? = '' OR k.TABLE_NAME = ?) AND k.REFERENCED_TABLE_NAME IS NOT NULL
	  GROUP BY k.TABLE_NAME, k.CONSTRAINT_NAME
	  ORDER BY k.TABLE_NAME, k.CONSTRAINT_NAME`,
	`SELECT t.TABLE_NAME, CONCAT('check ', t.CONSTRAINT_NAME, IF(t.ENFORCED = 'YES', '', ' not enforced'), ' ', c.CHECK_CLAUSE)
	   FROM information_schema.TABLE_CONSTRAINTS t
	   JOIN information_schema.CHECK_CONSTRAINTS c ON c.CONSTRAINT_SCHEMA = t.CONSTRAINT_SCHEMA AND c.CONSTRAINT_NAME = t.CONSTRAINT_NAME
	  WHERE t.TABLE_SCHEMA = DATABASE() AND (? = '' OR t.TABLE_NAME = ?) AND t.CONSTRAINT_TYPE = 'CHECK'
	  ORDER BY t.TABLE_NAME, t.CONSTRAINT_NAME`,
	`SELECT EVENT_OBJECT_TABLE, CONCAT('trigger ', TRIGGER_NAME, ' ', LOWER(ACTION_TIMING), ' ', LOWER(EVENT_MANIPULATION), ' ', ACTION_STATEMENT)
	   FROM information_schema.TRIGGERS
	  WHERE TRIGGER_SCHEMA = DATABASE() AND (? = '' OR EVENT_OBJECT_TABLE = ?)
	  ORDER BY EVENT_OBJECT_TABLE, ACTION_TIMING, EVENT_MANIPULATION, ACTION_ORDER`,
}

func describe(ctx context.Context, db Querier, table string) (map[string][]string, error) {
	tables := map[string][]string{}
	for _, query := range descriptions {
		if err := addLines(ctx, db, query, table, tables); err != nil {
			return nil, fmt.Errorf("read information_schema: %w", err)
		}
	}
	delete(tables, versionTable)
	return tables, nil
}

func addLines(ctx context.Context, db Querier, query, table string, tables map[string][]string) error {
	rows, err := db.QueryContext(ctx, query, table, table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, line string
		if err := rows.Scan(&name, &line); err != nil {
			return err
		}
		tables[name] = append(tables[name], normalise(line))
	}
	return rows.Err()
}

var (
	introducer = regexp.MustCompile(`\b_(utf8mb4|utf8mb3|ascii|latin1|binary)\s*(\\?')`)
	spaces     = regexp.MustCompile(`\s+`)
)

// normalise keeps the meaning of a line and drops a server's way of writing it.
func normalise(line string) string {
	if strings.HasPrefix(line, "check ") || strings.HasPrefix(line, "column ") && strings.Contains(line, " as ") {
		line = introducer.ReplaceAllString(line, "$2")
		line = strings.NewReplacer("`", "", `\'`, "'").Replace(line)
	}
	return spaces.ReplaceAllString(strings.TrimSpace(line), " ")
}

// differences lists what stands in only one of two descriptions, for people.
func differences(is, want []string) []string {
	var lines []string
	for _, line := range is {
		if !slices.Contains(want, line) {
			lines = append(lines, "is:        "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(is, line) {
			lines = append(lines, "should be: "+line)
		}
	}
	if len(lines) == 0 && !slices.Equal(is, want) {
		lines = append(lines, "is:        the same parts in another order")
	}
	return lines
}
