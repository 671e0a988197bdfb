package pulse

import "github.com/orbit-run/orbit/service/platform"

// KeyedOperations are the operations of this module that take an Idempotency-Key. A task of a batch is a submitTask.
var KeyedOperations = map[string]platform.Keyed{
	submitOperation: {Action: platform.ActionTasksSubmit, Path: submitPath},
	"cancelTask":    {Action: platform.ActionTasksManage, Path: "/v1/tasks/{task_id}:cancel"},
	"retryTask":     {Action: platform.ActionTasksManage, Path: "/v1/tasks/{task_id}:retry"},
	"resolveTask":   {Action: platform.ActionTasksManage, Path: "/v1/tasks/{task_id}:resolve"},
	"createQueue":   {Action: platform.ActionQueuesManage, Path: "/v1/queues"},
	"pauseQueue":    {Action: platform.ActionQueuesManage, Path: "/v1/queues/{queue_id}:pause"},
	"resumeQueue":   {Action: platform.ActionQueuesManage, Path: "/v1/queues/{queue_id}:resume"},
}
