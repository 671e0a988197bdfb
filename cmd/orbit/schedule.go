package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-faster/jx"

	"github.com/orbit-run/orbit/sdk/go/api"
	"github.com/orbit-run/orbit/sdk/go/client"
)

type scheduleCommand struct {
	Create      scheduleCreateCommand      `cmd:"" help:"Make a schedule."`
	Get         scheduleGetCommand         `cmd:"" help:"Show a schedule and when it fires next."`
	List        scheduleListCommand        `cmd:"" help:"List schedules."`
	Update      scheduleUpdateCommand      `cmd:"" help:"Publish a new version of a schedule; what is not given stays."`
	Preview     schedulePreviewCommand     `cmd:"" help:"Show when a schedule, or a timetable that is not stored, would fire."`
	Pause       schedulePauseCommand       `cmd:"" help:"Stop a schedule."`
	Resume      scheduleResumeCommand      `cmd:"" help:"Go on with a paused schedule, from now."`
	Trigger     scheduleTriggerCommand     `cmd:"" help:"Fire a schedule now."`
	Backfill    scheduleBackfillCommand    `cmd:"" help:"Fire the instants of a time that is past."`
	Archive     scheduleArchiveCommand     `cmd:"" help:"End a schedule for good."`
	Versions    scheduleVersionsCommand    `cmd:"" help:"List the versions of a schedule."`
	Occurrences scheduleOccurrencesCommand `cmd:"" help:"List what became of a schedule's instants."`
}

// timetableFlags say when a schedule fires.
type timetableFlags struct {
	Cron     string        `xor:"kind" placeholder:"EXPRESSION" help:"Cron expression of 5 fields, or 6 with the second first; or a macro such as @daily."`
	Every    time.Duration `xor:"kind" help:"Interval."`
	Phase    time.Duration `help:"Phase of the interval."`
	Calendar []string      `xor:"kind" placeholder:"WALL-TIME" help:"Dates with times of the zone's clocks, such as 2026-12-24T18:00."`
	At       time.Time     `xor:"kind" placeholder:"INSTANT" help:"One instant, RFC 3339."`
	Zone     string        `placeholder:"NAME" help:"IANA time zone; UTC where it is missing."`
	Gap      string        `enum:",shift,skip" default:"" help:"What a time does that the clocks skip: shift or skip."`
	Overlap  string        `enum:",first,second,both" default:"" help:"When a time fires that the clocks show twice: first, second or both."`
	StartsAt time.Time     `placeholder:"INSTANT" help:"Not before this instant, RFC 3339."`
	EndsAt   time.Time     `placeholder:"INSTANT" help:"Before this instant only, RFC 3339."`
	Jitter   time.Duration `help:"Tasks may run up to this much later than their instant."`
}

// fill sets what was given; another kind of timetable takes the place of the one before.
func (f timetableFlags) fill(t *api.Timetable) {
	if f.Cron != "" || f.Every != 0 || len(f.Calendar) > 0 || !f.At.IsZero() {
		t.Cron, t.EveryMs, t.PhaseMs, t.Calendar, t.At = optional(f.Cron), api.OptInt64{}, api.OptInt64{}, f.Calendar, api.OptDateTime{}
	}
	for member, value := range map[*api.OptInt64]time.Duration{&t.EveryMs: f.Every, &t.PhaseMs: f.Phase, &t.JitterMs: f.Jitter} {
		if value != 0 {
			member.SetTo(value.Milliseconds())
		}
	}
	for member, value := range map[*api.OptDateTime]time.Time{&t.At: f.At, &t.StartsAt: f.StartsAt, &t.EndsAt: f.EndsAt} {
		if !value.IsZero() {
			member.SetTo(value)
		}
	}
	if f.Zone != "" {
		t.Zone.SetTo(f.Zone)
	}
	if f.Gap != "" {
		t.Gap.SetTo(api.TimetableGap(f.Gap))
	}
	if f.Overlap != "" {
		t.Overlap.SetTo(api.TimetableOverlap(f.Overlap))
	}
}

// scheduleFlags are what create and update share besides.
type scheduleFlags struct {
	timetableFlags
	RunOverlap     string        `enum:",skip,buffer_one,buffer_all,allow,cancel_running" default:"" help:"What an instant does while an earlier task has not ended: skip, buffer_one, buffer_all, allow or cancel_running."`
	CatchUpWindow  time.Duration `help:"Instants older than this are not made up for."`
	CatchUpMax     *int          `help:"So many late instants are made up for at most."`
	Queue          string        `short:"q" placeholder:"NAME" help:"Queue of the tasks, by name or id."`
	Type           string        `short:"t" placeholder:"TYPE" help:"Type of the tasks, which names the handler."`
	Payload        jsonArgument  `short:"p" placeholder:"JSON" help:"Payload of the tasks: JSON, @FILE, or - for standard input."`
	PayloadVersion uint32        `help:"Version of the payload's shape."`
	Priority       int           `help:"1 goes first, 9 last."`
	MaxAttempts    int           `help:"Attempts of each task at most, the first included; the queue's where it is missing."`
	Deadline       time.Duration `help:"Each task fails if it has not ended this long after it may run."`
}

// fill sets what was given on the version that is to be published.
func (f scheduleFlags) fill(r *api.UpdateScheduleRequest) error {
	f.timetableFlags.fill(&r.Timetable)
	if f.RunOverlap != "" {
		r.RunOverlap.SetTo(api.UpdateScheduleRequestRunOverlap(f.RunOverlap))
	}
	if f.CatchUpWindow != 0 {
		r.CatchUpWindowMs.SetTo(f.CatchUpWindow.Milliseconds())
	}
	if f.CatchUpMax != nil {
		r.CatchUpMax.SetTo(*f.CatchUpMax)
	}
	switch t := &r.Task; {
	case f.Queue == "":
	case isID(f.Queue):
		t.QueueID, t.Queue = api.NewOptString(f.Queue), api.OptString{}
	default:
		t.QueueID, t.Queue = api.OptString{}, api.NewOptString(f.Queue)
	}
	if f.Type != "" {
		r.Task.Type = f.Type
	}
	payload, err := f.Payload.read()
	if err != nil {
		return err
	}
	if len(payload) > 0 {
		r.Task.Payload = jx.Raw(payload)
	}
	if f.PayloadVersion != 0 {
		r.Task.PayloadVersion.SetTo(int64(f.PayloadVersion))
	}
	if f.Priority != 0 {
		r.Task.Priority.SetTo(f.Priority)
	}
	if f.MaxAttempts != 0 {
		r.Task.MaxAttempts.SetTo(f.MaxAttempts)
	}
	if f.Deadline != 0 {
		r.Task.DeadlineMs.SetTo(f.Deadline.Milliseconds())
	}
	return nil
}

type scheduleCreateCommand struct {
	remoteSettings
	idempotent
	scheduleFlags
	Name string `arg:"" help:"Name, unique in the namespace."`
}

func (c *scheduleCreateCommand) Run(ctx commandContext, p *printer) error {
	if c.Queue == "" || c.Type == "" {
		return usagef("a schedule needs --queue and --type of its tasks")
	}
	remote, err := c.client()
	if err != nil {
		return err
	}
	var v api.UpdateScheduleRequest
	if err := c.fill(&v); err != nil {
		return err
	}
	request := &api.CreateScheduleRequest{Name: c.Name, Timetable: v.Timetable, CatchUpWindowMs: v.CatchUpWindowMs, CatchUpMax: v.CatchUpMax, Task: v.Task}
	if v.RunOverlap.Set {
		request.RunOverlap.SetTo(api.CreateScheduleRequestRunOverlap(v.RunOverlap.Value))
	}
	schedule, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.ScheduleHeaders, error) {
		return remote.API.CreateSchedule(ctx, request, api.CreateScheduleParams{IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.schedule(&schedule.Response)
}

// oneSchedule is for commands about one schedule.
type oneSchedule struct {
	remoteSettings
	Schedule string `arg:"" help:"Name or id of the schedule."`
}

func (c *oneSchedule) find(ctx context.Context) (*client.Client, string, error) {
	remote, err := c.client()
	if err != nil || isID(c.Schedule) {
		return remote, c.Schedule, err
	}
	found, err := read(ctx, func(ctx context.Context) (*api.ScheduleList, error) {
		return remote.API.ListSchedules(ctx, api.ListSchedulesParams{Name: api.NewOptString(c.Schedule)})
	})
	if err != nil {
		return nil, "", err
	}
	if len(found.Items) != 1 {
		return nil, "", fmt.Errorf("there is no schedule %q that this credential may see", c.Schedule)
	}
	return remote, found.Items[0].ID, nil
}

func (c *oneSchedule) get(ctx context.Context) (*client.Client, *api.GetScheduleOKHeaders, error) {
	remote, id, err := c.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	schedule, err := read(ctx, func(ctx context.Context) (*api.GetScheduleOKHeaders, error) {
		return remote.API.GetSchedule(ctx, api.GetScheduleParams{ScheduleID: id})
	})
	return remote, schedule, err
}

type scheduleGetCommand struct{ oneSchedule }

func (c *scheduleGetCommand) Run(ctx commandContext, p *printer) error {
	_, schedule, err := c.get(ctx)
	if err != nil {
		return err
	}
	return p.schedule(&schedule.Response)
}

type scheduleListCommand struct {
	remoteSettings
	Limit int `short:"n" default:"0" help:"At most so many; 0 is all."`
}

func (c *scheduleListCommand) Run(ctx commandContext, p *printer) error {
	remote, err := c.client()
	if err != nil {
		return err
	}
	schedules, err := collect(remote.Schedules(ctx), c.Limit)
	if err != nil {
		return err
	}
	rows := make([][]string, len(schedules))
	for i, s := range schedules {
		rows[i] = []string{s.ID, s.Name, timetable(s.Timetable), s.Timetable.Zone.Value, s.Task.Type, string(s.RunOverlap), scheduleState(&s), instant(s.NextFireAt.Value)}
	}
	return p.list(itemsView[api.Schedule]{schedules}, []string{"SCHEDULE", "NAME", "TIMETABLE", "ZONE", "TYPE", "OVERLAP", "STATE", "NEXT"}, rows)
}

type scheduleUpdateCommand struct {
	oneSchedule
	scheduleFlags
	Revision int64 `help:"Only if the schedule's revision is still this one; otherwise the one it has now."`
}

func (c *scheduleUpdateCommand) Run(ctx commandContext, p *printer) error {
	if reflect.ValueOf(c.scheduleFlags).IsZero() {
		return usagef("nothing to change: give at least one setting of the schedule")
	}
	remote, now, err := c.get(ctx)
	if err != nil {
		return err
	}
	etag := now.ETag
	if c.Revision != 0 {
		etag = `"` + formatInt(c.Revision) + `"`
	}
	s := now.Response
	request := &api.UpdateScheduleRequest{Timetable: s.Timetable, Task: s.Task,
		RunOverlap:      api.NewOptUpdateScheduleRequestRunOverlap(api.UpdateScheduleRequestRunOverlap(s.RunOverlap)),
		CatchUpWindowMs: api.NewOptInt64(s.CatchUpWindowMs), CatchUpMax: api.NewOptInt(s.CatchUpMax)}
	if err := c.fill(request); err != nil {
		return err
	}
	// Not repeated: after an unknown outcome the same If-Match would answer whether the version was published, as a refusal.
	changed, err := remote.API.UpdateSchedule(ctx, request, api.UpdateScheduleParams{ScheduleID: s.ID, IfMatch: api.NewOptString(etag)})
	if err != nil {
		return err
	}
	return p.schedule(&changed.Response)
}

type schedulePreviewCommand struct {
	remoteSettings
	timetableFlags
	Schedule string    `arg:"" optional:"" help:"Name or id of a schedule; without one, the timetable that the flags give."`
	After    time.Time `placeholder:"INSTANT" help:"Instants after this one, RFC 3339; now where it is missing."`
	Count    int       `short:"n" default:"10" help:"How many."`
}

func (c *schedulePreviewCommand) Run(ctx commandContext, p *printer) error {
	named := oneSchedule{remoteSettings: c.remoteSettings, Schedule: c.Schedule}
	remote, err := c.client()
	if err != nil {
		return err
	}
	request := &api.PreviewScheduleRequest{Count: api.NewOptInt(c.Count)}
	if !c.After.IsZero() {
		request.After.SetTo(c.After)
	}
	if c.Schedule != "" {
		var id string
		if remote, id, err = named.find(ctx); err != nil {
			return err
		}
		request.ScheduleID.SetTo(id)
	} else {
		var t api.Timetable
		c.fill(&t)
		request.Timetable.SetTo(t)
	}
	preview, err := read(ctx, func(ctx context.Context) (*api.SchedulePreview, error) {
		return remote.API.PreviewSchedule(ctx, request, api.PreviewScheduleParams{})
	})
	if err != nil {
		return err
	}
	rows := make([][]string, len(preview.Items))
	for i, f := range preview.Items {
		rows[i] = []string{instant(f.FireAt), f.Local, instant(f.RunAt.Value)}
	}
	return p.list(preview, []string{"FIRE", "LOCAL", "RUN"}, rows)
}

type schedulePauseCommand struct {
	oneSchedule
	idempotent
	Reason string `required:"" short:"r" help:"Why; shown with the schedule and kept in the audit."`
}

func (c *schedulePauseCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	schedule, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.ArchiveScheduleOKHeaders, error) {
		return remote.API.PauseSchedule(ctx, &api.PauseScheduleRequest{Reason: c.Reason}, api.PauseScheduleParams{ScheduleID: id, IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.schedule(&schedule.Response)
}

type scheduleResumeCommand struct {
	oneSchedule
	idempotent
	Reason string `short:"r" help:"Why; kept in the audit."`
}

func (c *scheduleResumeCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	request := api.NewOptResumeScheduleRequest(api.ResumeScheduleRequest{Reason: optional(c.Reason)})
	schedule, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.ArchiveScheduleOKHeaders, error) {
		return remote.API.ResumeSchedule(ctx, request, api.ResumeScheduleParams{ScheduleID: id, IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.schedule(&schedule.Response)
}

type scheduleArchiveCommand struct {
	oneSchedule
	idempotent
	Reason string `required:"" short:"r" help:"Why; kept in the audit."`
}

func (c *scheduleArchiveCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	schedule, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.ArchiveScheduleOKHeaders, error) {
		return remote.API.ArchiveSchedule(ctx, &api.ArchiveScheduleRequest{Reason: c.Reason}, api.ArchiveScheduleParams{ScheduleID: id, IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.schedule(&schedule.Response)
}

// ownOverlap is for acts that may have a policy of their own.
type ownOverlap struct {
	RunOverlap string `enum:",skip,buffer_one,buffer_all,allow,cancel_running" default:"" help:"Policy while an earlier task has not ended; the schedule's where it is missing."`
	Reason     string `short:"r" help:"Why; kept in the audit."`
}

func (o ownOverlap) policy() api.OptRunOverlap {
	if o.RunOverlap == "" {
		return api.OptRunOverlap{}
	}
	return api.NewOptRunOverlap(api.RunOverlap(o.RunOverlap))
}

type scheduleTriggerCommand struct {
	oneSchedule
	idempotent
	ownOverlap
}

func (c *scheduleTriggerCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	request := api.NewOptTriggerScheduleRequest(api.TriggerScheduleRequest{RunOverlap: c.policy(), Reason: optional(c.Reason)})
	o, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.OccurrenceHeaders, error) {
		return remote.API.TriggerSchedule(ctx, request, api.TriggerScheduleParams{ScheduleID: id, IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	return p.one(&o.Response, [][]string{
		{"occurrence", o.Response.ID},
		{"outcome", string(o.Response.Outcome)},
		{"code", o.Response.Code.Value},
		{"task", o.Response.TaskID.Value},
	})
}

type scheduleBackfillCommand struct {
	oneSchedule
	idempotent
	ownOverlap
	From time.Time `required:"" placeholder:"INSTANT" help:"First instant, RFC 3339."`
	To   time.Time `required:"" placeholder:"INSTANT" help:"Last instant, RFC 3339."`
}

func (c *scheduleBackfillCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	request := &api.BackfillScheduleRequest{From: c.From, To: c.To, RunOverlap: c.policy(), Reason: optional(c.Reason)}
	report, err := call(ctx, p, c.idempotent, func(ctx context.Context, key api.OptString) (*api.BackfillReportHeaders, error) {
		return remote.API.BackfillSchedule(ctx, request, api.BackfillScheduleParams{ScheduleID: id, IdempotencyKey: key})
	})
	if err != nil {
		return err
	}
	r := &report.Response
	return p.one(r, [][]string{
		{"fired", formatInt(r.Fired)},
		{"buffered", formatInt(r.Buffered)},
		{"skipped", formatInt(r.Skipped)},
		{"known before", formatInt(r.Known)},
	})
}

type scheduleVersionsCommand struct {
	oneSchedule
	Limit int `short:"n" default:"0" help:"At most so many; 0 is all."`
}

func (c *scheduleVersionsCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	versions, err := collect(remote.ScheduleVersions(ctx, id), c.Limit)
	if err != nil {
		return err
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		rows[i] = []string{formatInt(v.Version), timetable(v.Timetable), v.Timetable.Zone.Value, v.Task.Type, string(v.RunOverlap), v.ActorID, instant(v.CreatedAt)}
	}
	return p.list(itemsView[api.ScheduleVersion]{versions}, []string{"VERSION", "TIMETABLE", "ZONE", "TYPE", "OVERLAP", "PUBLISHED BY", "AT"}, rows)
}

type scheduleOccurrencesCommand struct {
	oneSchedule
	Limit int `short:"n" default:"50" help:"At most so many; 0 is all."`
}

func (c *scheduleOccurrencesCommand) Run(ctx commandContext, p *printer) error {
	remote, id, err := c.find(ctx)
	if err != nil {
		return err
	}
	list, err := collect(remote.Occurrences(ctx, id), c.Limit)
	if err != nil {
		return err
	}
	rows := make([][]string, len(list))
	for i, o := range list {
		rows[i] = []string{instant(o.FireAt), string(o.Source), string(o.Outcome), o.Code.Value, yes(o.Running), o.TaskID.Value, formatInt(o.Version)}
	}
	return p.list(itemsView[api.Occurrence]{list}, []string{"FIRE", "SOURCE", "OUTCOME", "CODE", "RUNNING", "TASK", "VERSION"}, rows)
}

// timetable is when a schedule fires, in a few words.
func timetable(t api.Timetable) string {
	switch {
	case t.Cron.Set:
		return t.Cron.Value
	case t.EveryMs.Set && t.PhaseMs.Value != 0:
		return "every " + milliseconds(t.EveryMs.Value) + " + " + milliseconds(t.PhaseMs.Value)
	case t.EveryMs.Set:
		return "every " + milliseconds(t.EveryMs.Value)
	case t.At.Set:
		return "at " + instant(t.At.Value)
	case len(t.Calendar) > 3:
		return strings.Join(t.Calendar[:3], ", ") + " and " + formatInt(len(t.Calendar)-3) + " more"
	}
	return strings.Join(t.Calendar, ", ")
}

func scheduleState(s *api.Schedule) string {
	switch {
	case s.ArchivedAt.Set:
		return "archived"
	case s.Paused:
		return "paused"
	case !s.NextFireAt.Set:
		return "over"
	}
	return "active"
}

func (p *printer) schedule(s *api.Schedule) error {
	t := s.Timetable
	rows := [][]string{
		{"schedule", s.ID},
		{"name", s.Name},
		{"state", scheduleState(s)},
		{"reason", s.PauseReason.Value},
		{"next fire", instant(s.NextFireAt.Value)},
		{"dealt with up to", instant(s.Watermark)},
		{"version", formatInt(s.Version)},
		{"timetable", timetable(t)},
		{"zone", t.Zone.Value},
		{"gap, overlap", string(t.Gap.Value) + ", " + string(t.Overlap.Value)},
		{"starts", instant(t.StartsAt.Value)},
		{"ends", instant(t.EndsAt.Value)},
		{"jitter", milliseconds(t.JitterMs.Value)},
		{"overlap of runs", string(s.RunOverlap)},
		{"catch up", milliseconds(s.CatchUpWindowMs) + ", at most " + formatInt(s.CatchUpMax)},
		{"queue", s.Task.QueueID.Value},
		{"type", s.Task.Type},
		{"payload", string(s.Task.Payload)},
		{"priority", formatInt(s.Task.Priority.Value)},
	}
	if s.Task.MaxAttempts.Set {
		rows = append(rows, []string{"attempts", formatInt(s.Task.MaxAttempts.Value)})
	}
	if s.Task.DeadlineMs.Set {
		rows = append(rows, []string{"deadline", milliseconds(s.Task.DeadlineMs.Value)})
	}
	return p.one(s, append(rows, []string{"revision", formatInt(s.Revision)}, []string{"created", instant(s.CreatedAt)}, []string{"updated", instant(s.UpdatedAt)}))
}
