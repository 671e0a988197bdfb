package schema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
)

// migrationLock is goose's session lock by GET_LOCK. MySQL's named locks are server-wide, so the
// name contains the schema's: two installations on one server do not wait for each other. The
// session that holds it also runs the DDL; when its client dies, the server keeps both until the
// statement is over, so nobody else starts while a statement still runs.
type migrationLock struct {
	logger *slog.Logger
}

const lockWaitSeconds = 5

func (l migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	name, err := lockName(ctx, conn)
	if err != nil {
		return err
	}
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, lockWaitSeconds).Scan(&got); err != nil {
			return fmt.Errorf("take the migration lock %s: %w", name, err)
		}
		switch {
		case !got.Valid:
			return fmt.Errorf("take the migration lock %s: the server gave it up (session killed or out of memory)", name)
		case got.Int64 == 1:
			return nil
		}
		var holder sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(&holder); err != nil {
			return fmt.Errorf("look at the migration lock %s: %w", name, err)
		}
		l.logger.InfoContext(ctx, "another session is migrating; waiting for its lock", "lock", name, "connection_id", holder.Int64)
	}
}

func (l migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	name, err := lockName(ctx, conn)
	if err != nil {
		return err
	}
	var released sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", name).Scan(&released); err != nil {
		return fmt.Errorf("release the migration lock %s: %w", name, err)
	}
	if released.Int64 != 1 {
		return fmt.Errorf("release the migration lock %s: this session did not hold it", name)
	}
	return nil
}

var errNoDatabase = errors.New("the DSN names no database: add its name after the slash, user:password@tcp(host:3306)/orbit")

// lockName is at most 64 characters, the limit of GET_LOCK; a schema's name alone may be as long.
func lockName(ctx context.Context, conn *sql.Conn) (string, error) {
	var database sql.NullString
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return "", fmt.Errorf("read the schema's name: %w", err)
	}
	if database.String == "" {
		return "", errNoDatabase
	}
	return lockNameOf(database.String), nil
}

func lockNameOf(database string) string {
	const prefix = "orbit_migrate:"
	if name := prefix + database; len(name) <= 64 && len([]rune(name)) == len(name) {
		return name
	}
	digest := sha256.Sum256([]byte(database))
	return prefix + hex.EncodeToString(digest[:20])
}
