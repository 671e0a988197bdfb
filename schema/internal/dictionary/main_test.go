package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orbit-run/orbit/schema"
)

func TestDictionaryIsFresh(t *testing.T) {
	fingerprints, err := schema.Fingerprints()
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := write(&want, fingerprints); err != nil {
		t.Fatal(err)
	}
	is, err := os.ReadFile("../../../docs/data-dictionary.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(is)); diff != "" {
		t.Errorf("docs/data-dictionary.md is not what the schema says; run `make gen` (-want +is):\n%s", diff)
	}
}

func TestDictionary(t *testing.T) {
	got, err := parse("pulse_things", []string{
		`table BASE TABLE engine=InnoDB collation=utf8mb4_0900_bin comment='a thing''s row'`,
		`column id binary(16) not null comment='identity'`,
		`column state varchar(16) collation=ascii_bin null default='open' comment='the owner\'s | state'`,
		`column sid bigint unsigned not null auto_increment comment='counts'`,
		`check ck_things_state (state in ('open'))`,
		`index ix_things_state btree (state, id)`,
		`index PRIMARY unique btree (id)`,
		`foreign key fk_things (id) references pulse_others (id) on update NO ACTION on delete NO ACTION`,
		`trigger things_no_update before update SIGNAL SQLSTATE '45000'`,
	})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	got.write(&b)
	for _, want := range []string{
		"| `id` | binary(16) |  | identity |\n",
		"| `state` | varchar(16), ascii_bin default='open' | yes | the owner's \\| state |\n",
		"| `sid` | bigint unsigned auto_increment |  | counts |\n",
		"- primary key (id)\n- index `ix_things_state` (state, id)\n- foreign key (id) → `pulse_others` (id)\n- check `ck_things_state`: `(state in ('open'))`\n- trigger `things_no_update`, before update\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
}

func TestWhatHasNoFormIsRefused(t *testing.T) {
	for _, line := range []string{"index ft fulltext (a)", "something new", "foreign key fk (a) references t (b) on update NO ACTION on delete CASCADE"} {
		if _, err := parse("t", []string{line}); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%q: %v, want a refusal that shows it", line, err)
		}
	}
	foreign := []schema.Fingerprint{{Version: 1, Table: "other_things", After: []string{`table BASE TABLE comment='x'`}}}
	if err := write(&strings.Builder{}, foreign); err == nil || !strings.Contains(err.Error(), "other_things") {
		t.Errorf("a table of no module: %v, want a refusal that names it", err)
	}
}
