package platform

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/gen/api"
	"github.com/orbit-run/orbit/gen/db/platformdb"
	"github.com/orbit-run/orbit/service/internal/dbtx"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// Host is what somebody with access to the machine and its database may do without a credential. Each act is audited with source host; acts on
// no namespace are audited under the zero namespace, which no credential can read.
type Host struct {
	s  *Service
	by string
}

// HostCommands are commands given by somebody on the host, named as user@host.
func (s *Service) HostCommands(by string) Host { return Host{s, by} }

// Application owns namespaces.
type Application struct {
	ID        orbit.ID
	Name      string
	CreatedAt time.Time
}

// Namespace is a tenant.
type Namespace struct {
	ID          orbit.ID
	Application string
	Name        string
	CreatedAt   time.Time
}

// Bootstrap names what the first credential is made in and called; empty names get defaults.
type Bootstrap struct {
	Application string // default
	Namespace   string // default
	Name        string // bootstrap
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkName(kind, name string) *fault.Fault {
	if hostName.MatchString(name) {
		return nil
	}
	return fault.New(fault.InvalidRequest, "the name of %s is 1 to 64 letters, digits, dots, underscores and hyphens, and begins with a letter or digit; %q is not", kind, name)
}

func (h Host) caller(namespaceID orbit.ID) Caller {
	return Caller{NamespaceID: namespaceID, Host: h.by}
}

// CreateApplication makes an application. A name that is taken is state_conflict.
func (h Host) CreateApplication(ctx context.Context, name string) (a Application, err error) {
	if f := checkName("an application", name); f != nil {
		return a, f
	}
	err = h.s.Lane.Run(ctx, "createApplication", func(ctx context.Context, tx *dbtx.Tx) error {
		a, err = h.createApplication(ctx, tx, name)
		return err
	})
	return a, err
}

func (h Host) createApplication(ctx context.Context, tx *dbtx.Tx, name string) (Application, error) {
	a := Application{orbit.NewID(tx.Now), name, tx.Now}
	err := platformdb.New(tx).HostInsertApplication(ctx, platformdb.HostInsertApplicationParams{ID: a.ID, Name: name, CreatedAt: tx.Now})
	if dbtx.IsDuplicate(err) {
		return a, fault.New(fault.StateConflict, "there is an application %q already", name)
	}
	if err != nil {
		return a, err
	}
	return a, Audit(ctx, tx, h.caller(orbit.ID{}), Act{Action: "createApplication", TargetKind: "application", TargetID: a.ID, Detail: map[string]any{"name": name}})
}

// CreateNamespace makes a namespace of an application, with what each module needs in it. A name that is taken is state_conflict.
func (h Host) CreateNamespace(ctx context.Context, application, name string) (n Namespace, err error) {
	if f := checkName("a namespace", name); f != nil {
		return n, f
	}
	err = h.s.Lane.Run(ctx, "createNamespace", func(ctx context.Context, tx *dbtx.Tx) error {
		owner, err := platformdb.New(tx).HostGetApplicationByName(ctx, application)
		if err := missing(err, "application"); err != nil {
			return err
		}
		n, err = h.createNamespace(ctx, tx, Application{ID: owner.ID, Name: owner.Name}, name)
		return err
	})
	return n, err
}

func (h Host) createNamespace(ctx context.Context, tx *dbtx.Tx, owner Application, name string) (Namespace, error) {
	q := platformdb.New(tx)
	n := Namespace{orbit.NewID(tx.Now), owner.Name, name, tx.Now}
	err := q.HostInsertNamespace(ctx, platformdb.HostInsertNamespaceParams{ID: n.ID, ApplicationID: owner.ID, Name: name, CreatedAt: tx.Now})
	if dbtx.IsDuplicate(err) {
		return n, fault.New(fault.StateConflict, "application %q has a namespace %q already", owner.Name, name)
	}
	if err != nil {
		return n, err
	}
	if err := q.InsertEventHead(ctx, n.ID); err != nil {
		return n, err
	}
	for _, prepare := range h.s.OnNamespace {
		if err := prepare(ctx, tx, n.ID); err != nil {
			return n, err
		}
	}
	return n, Audit(ctx, tx, h.caller(n.ID), Act{Action: "createNamespace", TargetKind: "namespace", TargetID: n.ID,
		Detail: map[string]any{"application": owner.Name, "name": name}})
}

// ListApplications gives all applications by name.
func (h Host) ListApplications(ctx context.Context) ([]Application, error) {
	rows, err := platformdb.New(h.s.Lane.DB).HostListApplications(ctx)
	list := make([]Application, len(rows))
	for i, r := range rows {
		list[i] = Application(r)
	}
	return list, err
}

// ListNamespaces gives all namespaces by application and name.
func (h Host) ListNamespaces(ctx context.Context) ([]Namespace, error) {
	rows, err := platformdb.New(h.s.Lane.DB).HostListNamespaces(ctx)
	list := make([]Namespace, len(rows))
	for i, r := range rows {
		list[i] = Namespace{r.ID, r.Application, r.Name, r.CreatedAt}
	}
	return list, err
}

// Namespace finds a namespace by its id, or by "application/namespace".
func (h Host) Namespace(ctx context.Context, ref string) (Namespace, error) {
	q := platformdb.New(h.s.Lane.DB)
	if id, err := orbit.ParseID(ref); err == nil {
		r, err := q.HostGetNamespace(ctx, id)
		return Namespace{r.ID, r.Application, r.Name, r.CreatedAt}, missing(err, "namespace")
	}
	application, name, ok := strings.Cut(ref, "/")
	if !ok {
		return Namespace{}, fault.New(fault.InvalidRequest, "a namespace is named by its id or as application/namespace; %q is neither", ref)
	}
	return findNamespace(ctx, q, application, name)
}

func findNamespace(ctx context.Context, q *platformdb.Queries, application, name string) (Namespace, error) {
	r, err := q.HostGetNamespaceByName(ctx, platformdb.HostGetNamespaceByNameParams{Application: application, Name: name})
	return Namespace{r.ID, r.Application, r.Name, r.CreatedAt}, missing(err, "namespace")
}

// Bootstrap makes the first credential of an installation, which may do everything in its namespace, and where they are missing its application and
// namespace. It works once: as soon as there is any credential it is state_conflict. Of two at once, one makes the credential.
func (h Host) Bootstrap(ctx context.Context, b Bootstrap) (issued Issued, err error) {
	b = Bootstrap{orDefault(b.Application, "default"), orDefault(b.Namespace, "default"), orDefault(b.Name, "bootstrap")}
	if f := errors.Join(asError(checkName("an application", b.Application)), asError(checkName("a namespace", b.Namespace))); f != nil {
		return issued, f
	}
	err = h.s.Lane.Run(ctx, "bootstrap", func(ctx context.Context, tx *dbtx.Tx) error {
		n, err := h.ensureNamespace(ctx, tx, b)
		if err != nil {
			return err
		}
		q := platformdb.New(tx)
		if _, err := q.HostLockNamespace(ctx, n.ID); err != nil {
			return err
		}
		present, err := q.HostCountCredentials(ctx)
		if err != nil {
			return err
		}
		if present > 0 {
			return fault.New(fault.StateConflict, "this installation has credentials already; make further ones on the host with `orbit admin credential create`, or through the API with one that may")
		}
		m, err := h.s.issue(ctx, tx, h.caller(n.ID), "bootstrap", orbit.NewID(tx.Now),
			NewCredential{Name: b.Name, Actions: []string{ActionAll}, Queues: []string{"*"}})
		return issued.take(m, tx.Now, err)
	})
	return issued, err
}

func (h Host) ensureNamespace(ctx context.Context, tx *dbtx.Tx, b Bootstrap) (Namespace, error) {
	q := platformdb.New(tx)
	owner, err := q.HostGetApplicationByName(ctx, b.Application)
	application := Application(owner)
	if errors.Is(err, sql.ErrNoRows) {
		application, err = h.createApplication(ctx, tx, b.Application)
	}
	if err != nil {
		return Namespace{}, err
	}
	n, err := findNamespace(ctx, q, b.Application, b.Namespace)
	var f *fault.Fault
	if errors.As(err, &f) && f.Code == fault.NotFound {
		return h.createNamespace(ctx, tx, application, b.Namespace)
	}
	return n, err
}

// CreateCredential makes a credential in a namespace.
func (h Host) CreateCredential(ctx context.Context, namespaceID orbit.ID, wanted NewCredential) (issued Issued, err error) {
	if wanted.Name == "" || len([]rune(wanted.Name)) > 128 {
		return issued, fault.New(fault.InvalidRequest, "the name of a credential has 1 to 128 characters")
	}
	if wanted.ExpiresIn < 0 || wanted.RatePerSecond < 0 {
		return issued, fault.New(fault.InvalidRequest, "neither the life of a credential nor its rate can be negative")
	}
	if f := wanted.check(); f != nil {
		return issued, f
	}
	err = h.s.Lane.Run(ctx, "createCredential", func(ctx context.Context, tx *dbtx.Tx) error {
		if _, err := platformdb.New(tx).HostGetNamespace(ctx, namespaceID); err != nil {
			return missing(err, "namespace")
		}
		m, err := h.s.issue(ctx, tx, h.caller(namespaceID), "createCredential", orbit.NewID(tx.Now), wanted)
		return issued.take(m, tx.Now, err)
	})
	return issued, err
}

// RotateCredential makes a new key for a credential; the present one works on for the overlap, up to 7 days.
func (h Host) RotateCredential(ctx context.Context, namespaceID, id orbit.ID, overlap time.Duration) (issued Issued, err error) {
	if overlap < 0 || overlap > maxOverlap {
		return issued, fault.New(fault.InvalidRequest, "the overlap is between 0 and %s, not %s", maxOverlap, overlap)
	}
	err = h.s.Lane.Run(ctx, "rotateCredential", func(ctx context.Context, tx *dbtx.Tx) error {
		m, err := h.s.rotate(ctx, tx, h.caller(namespaceID), "rotateCredential", id, overlap)
		return issued.take(m, tx.Now, err)
	})
	return issued, err
}

// RevokeCredential ends a credential for good; one that is revoked stays as it is.
func (h Host) RevokeCredential(ctx context.Context, namespaceID, id orbit.ID, reason string) (c Credential, err error) {
	err = h.s.Lane.Run(ctx, "revokeCredential", func(ctx context.Context, tx *dbtx.Tx) error {
		row, err := h.s.revoke(ctx, tx, h.caller(namespaceID), "revokeCredential", id, reason)
		if err != nil {
			return err
		}
		c, err = showCredential(row, tx.Now)
		return err
	})
	return c, err
}

// ListCredentials gives all credentials of a namespace, newest first.
func (h Host) ListCredentials(ctx context.Context, namespaceID orbit.ID) ([]Credential, error) {
	now, err := h.s.Lane.Now(ctx)
	if err != nil {
		return nil, err
	}
	var all []Credential
	before := greatest
	for {
		rows, err := platformdb.New(h.s.Lane.DB).ListCredentials(ctx, platformdb.ListCredentialsParams{NamespaceID: namespaceID, BeforeID: before, Limit: 500})
		if err != nil {
			return nil, fmt.Errorf("list credentials: %w", err)
		}
		for _, row := range rows {
			c, err := showCredential(row, now)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		if len(rows) < 500 {
			return all, nil
		}
		before = rows[len(rows)-1].ID
	}
}

// Credential is a credential as it is shown: without any part of its key.
type Credential = api.Credential

// Issued is a credential with a key that was just made for it. The key is nowhere else.
type Issued struct {
	Credential Credential
	Key        orbit.CredentialKey
}

func (i *Issued) take(m made, now time.Time, err error) error {
	if err != nil {
		return err
	}
	i.Key = m.key
	i.Credential, err = showCredential(m.row, now)
	return err
}

var greatest = orbit.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// maxOverlap is the longest time for which two keys of a credential work side by side.
const maxOverlap = 7 * 24 * time.Hour

func orDefault(name, value string) string {
	if name == "" {
		return value
	}
	return name
}

// asError keeps a nil fault a nil error.
func asError(f *fault.Fault) error {
	if f == nil {
		return nil
	}
	return f
}
