package schema

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
)

// Fingerprints are those built into this program, by version.
func Fingerprints() ([]Fingerprint, error) {
	var fingerprints []Fingerprint
	if err := json.Unmarshal(fingerprintFile, &fingerprints); err != nil {
		return nil, fmt.Errorf("fingerprints.json: %w", err)
	}
	return fingerprints, nil
}

// Replay runs the statements on an empty database and describes what each one leaves. It is for
// making and testing fingerprints.json: it takes no lock and records nothing.
func Replay(ctx context.Context, db *sql.DB, sources []Source) ([]Fingerprint, error) {
	before, err := Describe(ctx, db)
	if err != nil {
		return nil, err
	}
	if len(before) > 0 {
		return nil, fmt.Errorf("the database is not empty: it has %d tables", len(before))
	}
	fingerprints := make([]Fingerprint, 0, len(sources))
	for _, source := range sources {
		if _, err := db.ExecContext(ctx, source.Statement); err != nil {
			return nil, fmt.Errorf("step %05d_%s: %w", source.Version, source.Name, explain(err))
		}
		after, err := Describe(ctx, db)
		if err != nil {
			return nil, err
		}
		changed := changedTables(before, after)
		if len(changed) != 1 {
			return nil, fmt.Errorf("step %05d_%s changes tables %v; a step changes exactly one, visibly", source.Version, source.Name, changed)
		}
		table := changed[0]
		fingerprints = append(fingerprints, Fingerprint{Version: source.Version, Name: source.Name, Table: table, After: after[table]})
		before = after
	}
	return fingerprints, nil
}

func changedTables(before, after map[string][]string) []string {
	var changed []string
	for table, lines := range after {
		if !slices.Equal(before[table], lines) {
			changed = append(changed, table)
		}
	}
	for table := range before {
		if _, ok := after[table]; !ok {
			changed = append(changed, table)
		}
	}
	slices.Sort(changed)
	return changed
}
