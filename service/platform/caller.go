package platform

import (
	"context"
	"slices"
	"strings"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// Caller is who a request acts for, as its credential says; nothing of it comes from the body.
type Caller struct {
	NamespaceID  orbit.ID
	ActorID      orbit.ID
	CredentialID orbit.ID
	Actions      []string
	Queues       []string // patterns of queue names, in which * stands for any run of characters, none included
	RequestID    string
	Host         string // who acts on the host, as user@host, where there is no credential; empty otherwise
}

// The actions that can be granted. ActionAll grants each of them.
const (
	ActionAll          = "*"
	ActionTasksSubmit  = "tasks:submit"
	ActionTasksRead    = "tasks:read"
	ActionTasksManage  = "tasks:manage"
	ActionTasksExecute = "tasks:execute"
	ActionQueuesRead   = "queues:read"
	ActionQueuesManage = "queues:manage"
	ActionEventsRead   = "events:read"
	ActionAuditRead    = "audit:read"
	ActionAdmin        = "admin"
)

// Actions lists what can be granted.
var Actions = []string{ActionAll, ActionTasksSubmit, ActionTasksRead, ActionTasksManage, ActionTasksExecute,
	ActionQueuesRead, ActionQueuesManage, ActionEventsRead, ActionAuditRead, ActionAdmin}

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
	return slices.ContainsFunc(c.Queues, func(pattern string) bool { return matches(pattern, name) })
}

// SeesAllQueues reports whether lists need no filter by queue.
func (c Caller) SeesAllQueues() bool { return slices.Contains(c.Queues, "*") }

// matches takes the leftmost place for each part between stars, which finds a match wherever there is one.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	name, ok := strings.CutPrefix(name, parts[0])
	if !ok || len(parts) == 1 {
		return ok && name == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		if _, name, ok = strings.Cut(name, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(name, parts[last])
}
