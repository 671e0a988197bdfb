package service

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-faster/jx"
	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/ogen-go/ogen/ogenerrors"

	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/strict"
)

func TestDescribe(t *testing.T) {
	_, broken := strict.Scan(strict.Subject{}, []byte(`{"a":`))
	secret := "password=hunter2"
	for name, c := range map[string]struct {
		err  error
		code fault.Code
	}{
		"a refusal":                    {fault.New(fault.StateConflict, "no"), fault.StateConflict},
		"a wrapped refusal":            {fmt.Errorf("x: %w", fault.New(fault.LeaseLost, "no")), fault.LeaseLost},
		"a refusal in security":        {&ogenerrors.SecurityError{Err: fault.New(fault.PrincipalMismatch, "no")}, fault.PrincipalMismatch},
		"no key":                       {&ogenerrors.SecurityError{Err: ogenerrors.ErrSecurityRequirementIsNotSatisfied}, fault.Unauthenticated},
		"security without a database":  {&ogenerrors.SecurityError{Err: driver.ErrBadConn}, fault.Unavailable},
		"a body that is not JSON":      {broken, fault.InvalidRequest},
		"a commit that broke":          {&dbtx.UnknownCommit{Op: "x", Err: driver.ErrBadConn}, fault.OutcomeUnknown},
		"a commit that was refused":    {&dbtx.UnknownCommit{Op: "x", Err: &mysql.MySQLError{Number: 1290}}, fault.OutcomeUnknown},
		"a lost swap":                  {fmt.Errorf("x: %w", dbtx.ErrLost), fault.Unavailable},
		"no connection":                {driver.ErrBadConn, fault.Unavailable},
		"a read-only server":           {&mysql.MySQLError{Number: 1290, Message: secret}, fault.Unavailable},
		"too many connections":         {&mysql.MySQLError{Number: 1040, Message: secret}, fault.Unavailable},
		"out of time":                  {context.DeadlineExceeded, fault.Unavailable},
		"a statement that is wrong":    {&mysql.MySQLError{Number: 1064, Message: secret}, fault.Internal},
		"a constraint that was broken": {&mysql.MySQLError{Number: 3819, Message: secret}, fault.Internal},
		"anything else":                {errors.New(secret), fault.Internal},
	} {
		f := describe(c.err)
		if f.Code != c.code {
			t.Errorf("%s: %s, want %s", name, f.Code, c.code)
		}
		if strings.Contains(f.Detail, secret) {
			t.Errorf("%s tells its own text: %s", name, f.Detail)
		}
		if c.code.Status() == 503 && f.RetryAfter <= 0 {
			t.Errorf("%s: no Retry-After", name)
		}
	}
}

func TestEveryCodeHasTitleAndStatus(t *testing.T) {
	for code := range titles {
		if code.Status() < 400 {
			t.Errorf("%s has no status", code)
		}
	}
	for _, code := range fault.Codes() {
		if titles[code] == "" {
			t.Errorf("%s has no title", code)
		}
	}
}

func TestProblemHeaders(t *testing.T) {
	f := fault.New(fault.RateLimited, "slowly")
	f.RetryAfter = 1200 * time.Millisecond
	reply := withHeaders(problemOf(f, "r"))
	if reply.RetryAfter.Value != 2 || reply.Response.RetryAfterMs.Value != 1200 || reply.WWWAuthenticate.Set {
		t.Errorf("%+v", reply)
	}
	reply = withHeaders(problemOf(fault.New(fault.Unauthenticated, "who"), "r"))
	if reply.WWWAuthenticate.Value != `Bearer realm="orbit"` || reply.RetryAfter.Set {
		t.Errorf("%+v", reply)
	}
}

// The decoders' own words never reach a caller; what does is the place and the rule.
func TestDescribeDecoding(t *testing.T) {
	decode := func(text string, into interface {
		Decode(*jx.Decoder) error
		Validate() error
	}) error {
		if err := into.Decode(jx.DecodeStr(text)); err != nil {
			return &ogenerrors.DecodeRequestError{Err: &ogenerrors.DecodeBodyError{Err: err}}
		}
		return into.Validate()
	}
	type field struct{ Pointer, Code string }
	for _, c := range []struct {
		text string
		into interface {
			Decode(*jx.Decoder) error
			Validate() error
		}
		want []field
	}{
		{`{"name":"","actions":[],"queues":["a b"],"rate_limit_per_second":100001}`, &api.CreateCredentialRequest{},
			[]field{{"/name", "too_short"}, {"/actions", "too_short"}, {"/queues/0", "pattern"}, {"/rate_limit_per_second", "out_of_range"}}},
		{`{}`, &api.CreateCredentialRequest{}, []field{{"/name", "required"}, {"/actions", "required"}, {"/queues", "required"}}},
		{`{"name":7,"actions":["x"],"queues":[]}`, &api.CreateCredentialRequest{}, []field{{"/name", "type"}}},
		{`{"name":"x","actions":"x","queues":[]}`, &api.CreateCredentialRequest{}, []field{{"/actions", "type"}}},
		{`{"a/b~c":7}`, &api.CreateCredentialRequest{}, []field{{"/a~1b~0c", "unknown_field"}}},
		{`{"expires_at":"soon"}`, &api.CreateCredentialRequest{}, []field{{"/expires_at", "date_time"}}},
		{`{"actor_id":"ABCDEF"}`, &api.CreateCredentialRequest{}, []field{{"/actor_id", "pattern"}}},
		{`[]`, &api.CreateCredentialRequest{}, []field{{"", "type"}}},
		{`{"attempt_id":"` + strings.Repeat("0", 32) + `","token":"t","outcome":"won"}`, &api.FinishItem{}, []field{{"/outcome", "enum"}}},
		{`{"attempt_id":"` + strings.Repeat("0", 32) + `","token":"t","outcome":"failed","error":{"code":"x","why":1}}`, &api.FinishItem{},
			[]field{{"/error/why", "unknown_field"}}},
		{`{"attempt_id":"` + strings.Repeat("0", 32) + `","token":"t","outcome":"failed","error":{}}`, &api.FinishItem{}, []field{{"/error/code", "required"}}},
	} {
		err := decode(c.text, c.into)
		if err == nil {
			t.Errorf("%s is taken", c.text)
			continue
		}
		f := describe(err)
		got := make([]field, len(f.Errors))
		for i, e := range f.Errors {
			got[i] = field{e.Pointer, e.Code}
			if strings.Contains(e.Detail, "decode") || strings.Contains(e.Detail, "byte") || e.Detail == "" {
				t.Errorf("%s: in the decoder's words: %s", c.text, e.Detail)
			}
		}
		if f.Code != fault.InvalidRequest || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %s %v, want %v (%v)", c.text, f.Code, got, c.want, err)
		}
	}
}

func TestManyFaultsAreBounded(t *testing.T) {
	queues := strings.Repeat(`"a b",`, 99) + `"a b"`
	var in api.CreateCredentialRequest
	if err := in.Decode(jx.DecodeStr(`{"name":"x","actions":["x"],"queues":[` + queues + `]}`)); err != nil {
		t.Fatal(err)
	}
	if f := describe(in.Validate()); len(f.Errors) != maxFields {
		t.Errorf("%d faults are told, want %d", len(f.Errors), maxFields)
	}
}

func TestEachProblemPageIsHeadedByItsTitle(t *testing.T) {
	for _, code := range fault.Codes() {
		page, err := os.ReadFile("../docs/problems/" + string(code) + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if want := "# " + titles[code] + "\n"; !strings.HasPrefix(string(page), want) {
			t.Errorf("the page of %s does not begin with %q", code, want)
		}
	}
}
