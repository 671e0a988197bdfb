package main

import (
	"context"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/schema"
	"github.com/orbit-run/orbit/service"
)

// adminCommand works on the host: whoever has the database's DSN may do all of it.
type adminCommand struct {
	Bootstrap   bootstrapCommand   `cmd:"" help:"Make the first application, namespace and credential, once."`
	Application applicationCommand `cmd:"" help:"Make and list applications."`
	Namespace   namespaceCommand   `cmd:"" help:"Make and list namespaces, the tenants."`
	Credential  credentialCommand  `cmd:"" help:"Make, rotate, revoke and list credentials."`
}

// withHost runs fn with the commands of the host, on a database of this program's version.
func (s databaseSettings) withHost(ctx context.Context, fn func(service.Host) error) error {
	return s.withService(ctx, func(replica *service.Service) error { return fn(replica.Host(whoever())) })
}

func (s databaseSettings) withService(ctx context.Context, fn func(*service.Service) error) error {
	dsn, err := s.dsn()
	if err != nil {
		return err
	}
	pools, err := openPools(dsn, 4)
	if err != nil {
		return err
	}
	defer pools.close()
	if err := schema.Check(ctx, pools.batch); err != nil {
		return err
	}
	replica, err := service.New(service.Options{DB: pools.batch, Lane: pools.lane, Version: thisBuild().Version})
	if err != nil {
		return err
	}
	return fn(replica)
}

// whoever names who acts, for the audit: nothing here can prove it.
func whoever() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if sudo := os.Getenv("SUDO_USER"); sudo != "" {
		name = sudo
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

type bootstrapCommand struct {
	databaseSettings
	Application string `default:"default" help:"Name of the application (${default})."`
	Namespace   string `default:"default" help:"Name of the namespace (${default})."`
	Name        string `default:"bootstrap" help:"Name of the credential (${default})."`
}

// Run refuses as soon as there is any credential.
func (c *bootstrapCommand) Run(ctx commandContext, p *printer) error {
	return c.withHost(ctx, func(h service.Host) error {
		issued, err := h.Bootstrap(ctx, service.Bootstrap{Application: c.Application, Namespace: c.Namespace, Name: c.Name})
		if err != nil {
			return err
		}
		return p.issued(issued)
	})
}

type applicationCommand struct {
	Create applicationCreateCommand `cmd:"" help:"Make an application."`
	List   applicationListCommand   `cmd:"" help:"List applications."`
}

type applicationCreateCommand struct {
	databaseSettings
	Name string `arg:"" help:"Name, unique on this installation."`
}

type applicationView struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

func viewApplication(a service.Application) applicationView {
	return applicationView{a.ID.String(), a.Name, a.CreatedAt.UTC()}
}

func (c *applicationCreateCommand) Run(ctx commandContext, p *printer) error {
	return c.withHost(ctx, func(h service.Host) error {
		a, err := h.CreateApplication(ctx, c.Name)
		if err != nil {
			return err
		}
		return p.one(viewApplication(a), [][]string{{"application", a.ID.String()}, {"name", a.Name}, {"created", instant(a.CreatedAt)}})
	})
}

type applicationListCommand struct{ databaseSettings }

func (c *applicationListCommand) Run(ctx commandContext, p *printer) error {
	return c.withHost(ctx, func(h service.Host) error {
		applications, err := h.ListApplications(ctx)
		if err != nil {
			return err
		}
		views, rows := make([]applicationView, len(applications)), make([][]string, len(applications))
		for i, a := range applications {
			views[i] = viewApplication(a)
			rows[i] = []string{a.ID.String(), a.Name, instant(a.CreatedAt)}
		}
		return p.list(itemsView[applicationView]{views}, []string{"APPLICATION", "NAME", "CREATED"}, rows)
	})
}

type namespaceCommand struct {
	Create namespaceCreateCommand `cmd:"" help:"Make a namespace of an application."`
	List   namespaceListCommand   `cmd:"" help:"List namespaces."`
}

type namespaceCreateCommand struct {
	databaseSettings
	Name string `arg:"" placeholder:"APPLICATION/NAMESPACE" help:"As application/namespace; the application exists."`
}

type namespaceView struct {
	ID          string    `json:"id"`
	Application string    `json:"application"`
	Name        string    `json:"name"`
	CreatedAt   time.Time `json:"created_at"`
}

func viewNamespace(n service.Namespace) namespaceView {
	return namespaceView{n.ID.String(), n.Application, n.Name, n.CreatedAt.UTC()}
}

func (c *namespaceCreateCommand) Run(ctx commandContext, p *printer) error {
	application, name, ok := strings.Cut(c.Name, "/")
	if !ok {
		return usagef("a namespace is made as application/namespace; %q has no slash", c.Name)
	}
	return c.withHost(ctx, func(h service.Host) error {
		n, err := h.CreateNamespace(ctx, application, name)
		if err != nil {
			return err
		}
		return p.one(viewNamespace(n), [][]string{
			{"namespace", n.ID.String()}, {"application", n.Application}, {"name", n.Name}, {"created", instant(n.CreatedAt)},
		})
	})
}

type namespaceListCommand struct{ databaseSettings }

func (c *namespaceListCommand) Run(ctx commandContext, p *printer) error {
	return c.withHost(ctx, func(h service.Host) error {
		namespaces, err := h.ListNamespaces(ctx)
		if err != nil {
			return err
		}
		views, rows := make([]namespaceView, len(namespaces)), make([][]string, len(namespaces))
		for i, n := range namespaces {
			views[i] = viewNamespace(n)
			rows[i] = []string{n.ID.String(), n.Application + "/" + n.Name, instant(n.CreatedAt)}
		}
		return p.list(itemsView[namespaceView]{views}, []string{"NAMESPACE", "NAME", "CREATED"}, rows)
	})
}

type credentialCommand struct {
	Create credentialCreateCommand `cmd:"" help:"Make a credential and print its key, once."`
	Rotate credentialRotateCommand `cmd:"" help:"Make a new key for a credential and print it, once."`
	Revoke credentialRevokeCommand `cmd:"" help:"End a credential for good."`
	List   credentialListCommand   `cmd:"" help:"List a namespace's credentials, without their keys."`
}

// inNamespace is for commands about one namespace.
type inNamespace struct {
	databaseSettings
	Namespace string `short:"N" default:"default/default" placeholder:"NAMESPACE" help:"Namespace, by id or as application/namespace (${default})."`
}

func (c inNamespace) run(ctx context.Context, fn func(service.Host, service.Namespace) error) error {
	return c.withHost(ctx, func(h service.Host) error {
		n, err := h.Namespace(ctx, c.Namespace)
		if err != nil {
			return err
		}
		return fn(h, n)
	})
}

type credentialCreateCommand struct {
	inNamespace
	Name      string        `arg:"" help:"Name, for people."`
	Action    []string      `required:"" short:"a" help:"Action it grants, such as tasks:submit, or * for all; repeat it for more."`
	Queue     []string      `short:"q" help:"Pattern of queue names it covers, * for all; repeat it for more. None covers no queue."`
	Actor     string        `placeholder:"ID" help:"Actor it acts for; a new one where it is missing."`
	ExpiresIn time.Duration `help:"Life of the credential; endless where it is missing."`
	RateLimit int           `help:"Requests a second; the service's own limit where it is missing."`
}

func (c *credentialCreateCommand) Run(ctx commandContext, p *printer) error {
	wanted := service.NewCredential{Name: c.Name, Actions: c.Action, Queues: c.Queue, ExpiresIn: c.ExpiresIn, RatePerSecond: c.RateLimit}
	if c.Actor != "" {
		var err error
		if wanted.ActorID, err = orbit.ParseID(c.Actor); err != nil {
			return usagef("--actor: %w", err)
		}
	}
	return c.run(ctx, func(h service.Host, n service.Namespace) error {
		issued, err := h.CreateCredential(ctx, n.ID, wanted)
		if err != nil {
			return err
		}
		return p.issued(issued)
	})
}

// oneCredential is for commands about one credential.
type oneCredential struct {
	inNamespace
	Credential string `arg:"" help:"Id of the credential."`
}

func (c oneCredential) id() (orbit.ID, error) {
	id, err := orbit.ParseID(c.Credential)
	if err != nil {
		return id, usagef("credential %q: %w", c.Credential, err)
	}
	return id, nil
}

type credentialRotateCommand struct {
	oneCredential
	Overlap time.Duration `default:"1h" help:"How long the key it has now goes on working, at most 168h (${default})."`
}

func (c *credentialRotateCommand) Run(ctx commandContext, p *printer) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	return c.run(ctx, func(h service.Host, n service.Namespace) error {
		issued, err := h.RotateCredential(ctx, n.ID, id, c.Overlap)
		if err != nil {
			return err
		}
		return p.issued(issued)
	})
}

type credentialRevokeCommand struct {
	oneCredential
	Reason string `required:"" short:"r" help:"Why; kept in the audit."`
}

func (c *credentialRevokeCommand) Run(ctx commandContext, p *printer) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	return c.run(ctx, func(h service.Host, n service.Namespace) error {
		credential, err := h.RevokeCredential(ctx, n.ID, id, c.Reason)
		if err != nil {
			return err
		}
		return p.one(&credential, credentialRows(&credential))
	})
}

type credentialListCommand struct{ inNamespace }

func (c *credentialListCommand) Run(ctx commandContext, p *printer) error {
	return c.run(ctx, func(h service.Host, n service.Namespace) error {
		credentials, err := h.ListCredentials(ctx, n.ID)
		if err != nil {
			return err
		}
		rows := make([][]string, len(credentials))
		for i, r := range credentials {
			rows[i] = []string{r.ID.String(), r.Name, string(r.State), strings.Join(r.Actions, ","), strings.Join(r.Queues, ","), instant(r.ExpiresAt.Value), instant(r.LastUsedAt.Value)}
		}
		if credentials == nil {
			credentials = []service.Credential{}
		}
		return p.list(itemsView[service.Credential]{credentials}, []string{"CREDENTIAL", "NAME", "STATE", "ACTIONS", "QUEUES", "EXPIRES", "LAST USED"}, rows)
	})
}

func credentialRows(c *service.Credential) [][]string {
	return [][]string{
		{"credential", c.ID.String()},
		{"name", c.Name},
		{"state", string(c.State)},
		{"actor", c.ActorID.String()},
		{"actions", strings.Join(c.Actions, ",")},
		{"queues", strings.Join(c.Queues, ",")},
		{"expires", instant(c.ExpiresAt.Value)},
	}
}

type issuedView struct {
	NamespaceID string              `json:"namespace_id"`
	Credential  *service.Credential `json:"credential"`
	Key         string              `json:"key"`
}

// issued prints a key. It is the only time: the database has its digest alone.
func (p *printer) issued(i service.Issued) error {
	view := issuedView{i.Key.Namespace.String(), &i.Credential, i.Key.Text()}
	rows := append([][]string{{"namespace", view.NamespaceID}}, credentialRows(&i.Credential)...)
	if err := p.one(view, append(rows, []string{"key", view.Key})); err != nil {
		return err
	}
	p.hint("Keep the key now: it is not stored and cannot be shown again.")
	return nil
}
