package platform

import (
	"errors"
	"testing"

	"github.com/orbit-run/orbit/service/internal/fault"
)

func TestSeesQueue(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		name     string
		want     bool
	}{
		{nil, "mail", false},
		{[]string{"*"}, "mail", true},
		{[]string{"*"}, "team/mail", true},
		{[]string{"mail"}, "mail", true},
		{[]string{"mail"}, "mail2", false},
		{[]string{"mail"}, "Mail", false},
		{[]string{"mail-*"}, "mail-", true},
		{[]string{"mail-*"}, "mail-eu", true},
		{[]string{"mail-*"}, "mail-eu/north", false},
		{[]string{"team/*"}, "team/mail", true},
		{[]string{"team/*"}, "team", false},
		{[]string{"m?il"}, "mail", true},
		{[]string{"m?il"}, "mil", false},
		{[]string{"a", "b", "*-x"}, "c-x", true},
	} {
		if got := (Caller{Queues: c.patterns}).SeesQueue(c.name); got != c.want {
			t.Errorf("%v sees %q: %t, want %t", c.patterns, c.name, got, c.want)
		}
	}
}

func TestAuthorize(t *testing.T) {
	with := func(actions ...string) error {
		_, err := Authorize(withCaller(t.Context(), Caller{Actions: actions}), ActionTasksRead, ActionQueuesRead)
		return err
	}
	for _, actions := range [][]string{{ActionAll}, {ActionTasksRead}, {ActionQueuesRead}, {ActionAdmin, ActionTasksRead}} {
		if err := with(actions...); err != nil {
			t.Errorf("%v: %v", actions, err)
		}
	}
	for _, actions := range [][]string{nil, {ActionAdmin}, {ActionTasksManage}} {
		var f *fault.Fault
		if err := with(actions...); !errors.As(err, &f) || f.Code != fault.Forbidden {
			t.Errorf("%v: %v, want forbidden", actions, err)
		}
	}
	if _, err := Authorize(t.Context(), ActionTasksRead); err == nil {
		t.Error("a context without a caller is authorized")
	}
}
