package platform

import (
	"context"
	"path"
	"regexp"
	"slices"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// Caller is who a request acts for, as its credential says; nothing of it comes from the body.
type Caller struct {
	NamespaceID  orbit.ID
	ActorID      orbit.ID
	CredentialID orbit.ID
	Actions      []string
	Queues       []string // patterns of queue names as in path.Match, where * stands for no slash; * alone covers every name
	RequestID    string
	Host         string // who acts on the host, as user@host, where there is no credential; empty otherwise
}

// The actions that can be granted. ActionAll grants each of them.
const (
	ActionAll             = "*"
	ActionTasksSubmit     = "tasks:submit"
	ActionTasksRead       = "tasks:read"
	ActionTasksManage     = "tasks:manage"
	ActionTasksExecute    = "tasks:execute"
	ActionQueuesRead      = "queues:read"
	ActionQueuesManage    = "queues:manage"
	ActionSchedulesRead   = "schedules:read"
	ActionSchedulesManage = "schedules:manage"
	ActionEventsRead      = "events:read"
	ActionAuditRead       = "audit:read"
	ActionAdmin           = "admin"
)

// Actions lists what can be granted.
var Actions = []string{ActionAll, ActionTasksSubmit, ActionTasksRead, ActionTasksManage, ActionTasksExecute,
	ActionQueuesRead, ActionQueuesManage, ActionSchedulesRead, ActionSchedulesManage, ActionEventsRead, ActionAuditRead, ActionAdmin}

type callerKey struct{}

func withCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom gives the caller of a request that passed the security handler.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// Authorize gives the caller if one of the actions is granted, and forbidden otherwise.
func Authorize(ctx context.Context, actions ...string) (Caller, error) {
	c := CallerFrom(ctx)
	if slices.Contains(c.Actions, ActionAll) {
		return c, nil
	}
	for _, a := range actions {
		if slices.Contains(c.Actions, a) {
			return c, nil
		}
	}
	return c, fault.New(fault.Forbidden, "this credential is not granted %s", actions[0])
}

// SeesQueue reports whether the queue's name was granted. One that was not answers like one that does not exist.
func (c Caller) SeesQueue(name string) bool {
	return c.SeesAllQueues() || slices.ContainsFunc(c.Queues, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// SeesAllQueues reports whether lists need no filter by queue.
func (c Caller) SeesAllQueues() bool { return slices.Contains(c.Queues, "*") }

// queuePattern is what a pattern of queue names is made of: none of it is an error to path.Match.
var queuePattern = regexp.MustCompile(`^[A-Za-z0-9._:/*?-]{1,128}$`)
