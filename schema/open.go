package schema

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// waitTimeout is how long the server keeps a silent session: a vanished host must not hold locks
// for the server's eight hours. The pool gives connections up well before.
const waitTimeout = 60 * time.Second

// PoolOptions are the limits of one pool. The zero value is a pool for reading and tests.
type PoolOptions struct {
	// MaxOpen bounds the connections; 0 means 16.
	MaxOpen int
	// LockWait is innodb_lock_wait_timeout, whole seconds, at least 1; 0 means 5 s.
	LockWait time.Duration
	// Program names the pool in the server's performance_schema; empty means orbit.
	Program string
	// Between, where it is set, stands between the pool and the driver. Tests break statements with it.
	Between func(driver.Connector) driver.Connector
}

// Open makes a pool whose sessions keep Orbit's rules, whatever the DSN says of them: UTC, READ
// COMMITTED, strict SQL mode, binary collation, changed (not found) rows counted, instants
// truncated to microseconds, read-only servers refused, wait_timeout 60 s, several statements in
// one packet, and a packet limit that is the server's own. Addresses, accounts, TLS and time-outs are the DSN's. It does not
// connect.
func Open(dsn string, options PoolOptions) (*sql.DB, error) {
	config, err := sessionConfig(dsn, options, waitTimeout)
	if err != nil {
		return nil, err
	}
	if config.DBName == "" {
		return nil, errNoDatabase
	}
	var connector driver.Connector
	if connector, err = mysql.NewConnector(config); err != nil {
		return nil, fmt.Errorf("database DSN: %w", err)
	}
	if options.Between != nil {
		connector = options.Between(connector)
	}
	maxOpen := options.MaxOpen
	if maxOpen == 0 {
		maxOpen = 16
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxOpen)
	db.SetMaxIdleConns(maxOpen)
	db.SetConnMaxLifetime(waitTimeout - 15*time.Second)
	db.SetConnMaxIdleTime(waitTimeout / 2)
	return db, nil
}

// sqlMode is the server's own default: strict, no invalid dates, no silent engine change.
const sqlMode = "'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"

func sessionConfig(dsn string, options PoolOptions, wait time.Duration) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("database DSN: %w (want user:password@tcp(host:3306)/orbit)", err)
	}
	lockWait := options.LockWait
	if lockWait == 0 {
		lockWait = 5 * time.Second
	}
	if lockWait < time.Second || lockWait%time.Second != 0 {
		return nil, fmt.Errorf("lock wait %s: MySQL counts it in whole seconds, from 1", lockWait)
	}
	program := options.Program
	if program == "" {
		program = "orbit"
	}
	config.ParseTime, config.Loc = true, time.UTC
	config.InterpolateParams = true
	// With found rows a no-op upsert answers 1 for an insert and for a duplicate alike.
	config.ClientFoundRows = false
	config.RejectReadOnly = true
	config.MultiStatements = true // a transaction sends its writes in one packet; every statement is a constant
	config.MaxAllowedPacket = 0   // ask the server
	config.Collation = ""         // ignored for 0900_bin: set as a session variable below
	config.ConnectionAttributes = "program_name:" + program
	config.Logger = &mysql.NopLogger{} // what it would print is in the errors
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	params := maps.Clone(config.Params)
	if params == nil {
		params = map[string]string{}
	}
	delete(params, "tx_isolation")
	params["time_zone"] = "'+00:00'"
	params["transaction_isolation"] = "'READ-COMMITTED'"
	params["collation_connection"] = "utf8mb4_0900_bin"
	params["sql_mode"] = sqlMode
	params["wait_timeout"] = strconv.Itoa(int(wait / time.Second))
	params["innodb_lock_wait_timeout"] = strconv.Itoa(int(lockWait / time.Second))
	config.Params = params
	return config, config.Apply(mysql.TimeTruncate(time.Microsecond))
}
