package pulse

import "github.com/orbit-run/orbit/service/platform"

// KeyedOperations are the operations of this module that take an Idempotency-Key. A task of a batch is a submitTask.
var KeyedOperations = map[string]platform.Keyed{
	submitOperation:    {Action: platform.ActionTasksSubmit, Path: submitPath},
	"cancelTask":       {Action: platform.ActionTasksManage, Path: "/v1/tasks/{task_id}:cancel"},
	"retryTask":        {Action: platform.ActionTasksManage, Path: "/v1/tasks/{task_id}:retry"},
	"resolveTask":      {Action: platform.ActionTasksManage, Path: "/v1/tasks/{task_id}:resolve"},
	"createSchedule":   {Action: platform.ActionSchedulesManage, Path: "/v1/schedules"},
	"pauseSchedule":    {Action: platform.ActionSchedulesManage, Path: "/v1/schedules/{schedule_id}:pause"},
	"resumeSchedule":   {Action: platform.ActionSchedulesManage, Path: "/v1/schedules/{schedule_id}:resume"},
	"archiveSchedule":  {Action: platform.ActionSchedulesManage, Path: "/v1/schedules/{schedule_id}:archive"},
	"triggerSchedule":  {Action: platform.ActionSchedulesManage, Path: "/v1/schedules/{schedule_id}:trigger"},
	"backfillSchedule": {Action: platform.ActionSchedulesManage, Path: "/v1/schedules/{schedule_id}:backfill"},
	"createQueue":      {Action: platform.ActionQueuesManage, Path: "/v1/queues"},
	"pauseQueue":       {Action: platform.ActionQueuesManage, Path: "/v1/queues/{queue_id}:pause"},
	"resumeQueue":      {Action: platform.ActionQueuesManage, Path: "/v1/queues/{queue_id}:resume"},
}
