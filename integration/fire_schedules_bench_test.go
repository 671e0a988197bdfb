package integration_test

import (
	"testing"
	"time"

	"github.com/orbit-run/orbit/integration/harness"
)

// BenchmarkTenThousandDueSchedules fires 10,000 schedules that are due at one instant, on one replica.
func BenchmarkTenThousandDueSchedules(b *testing.B) {
	const schedules = 10_000
	o := harness.Start(b, harness.Options{})
	o.CreateQueue("q", nil)
	nextMinute(b, o)
	first := createSchedule(b, o, everyMinute("s", "run_overlap", "buffer_one"))
	digits := "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	copies := "CROSS JOIN (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM " + digits + " a CROSS JOIN " + digits + " b CROSS JOIN " + digits + " c CROSS JOIN " + digits + " e) x WHERE x.n > 0"
	id := "UNHEX(LPAD(HEX(x.n), 32, '0'))"
	for _, statement := range []string{
		"INSERT INTO pulse_schedules SELECT s.namespace_id, " + id + ", CONCAT('s', x.n), 1, NULL, '', NULL, s.watermark, s.next_fire_at, 1, s.created_at, s.updated_at FROM pulse_schedules s " + copies,
		"INSERT INTO pulse_schedule_versions SELECT v.namespace_id, " + id + ", 1, v.timetable, v.jitter_ms, v.run_overlap, v.catch_up_window_ms, v.catch_up_max, v.queue_id, v.type, v.payload, v.payload_version, v.priority, v.max_attempts, v.deadline_ms, v.actor_id, v.created_at FROM pulse_schedule_versions v " + copies,
		"INSERT INTO orbit_events SELECT e.namespace_id, " + id + ", 0, 'schedule', " + id + ", 1, e.type, e.actor_id, e.data, e.occurred_at FROM orbit_events e " + copies + " AND e.type = 'schedule.created'",
		"INSERT INTO orbit_event_spool (namespace_id, batch_id, event_count) SELECT s.namespace_id, s.id, 1 FROM pulse_schedules s WHERE s.name <> 's'",
	} {
		if _, err := o.DB.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	if n := o.Count("pulse_schedules WHERE next_fire_at = ?", first.NextFireAt); n != schedules {
		b.Fatalf("%d schedules", n)
	}
	var fired int
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		nextMinute(b, o)
		begin := time.Now()
		b.StartTimer()
		fired += fireAll(b, o)
		took += time.Since(begin)
	}
	b.ReportMetric(float64(fired)/took.Seconds(), "instants/s")
	b.ReportMetric(took.Seconds()/float64(b.N), "s/10000")
}
