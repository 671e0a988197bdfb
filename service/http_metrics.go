package service

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/orbit-run/orbit/service/internal/nudge"
)

type metrics struct {
	requests *prometheus.HistogramVec
	inFlight prometheus.Gauge
	passes   *prometheus.HistogramVec
	moved    *prometheus.CounterVec
	nudges   *prometheus.CounterVec
}

func newMetrics(o Options) (metrics, error) {
	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	m := metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_http_request_duration_seconds", Help: "Time to answer requests, long polls with their wait.", Buckets: seconds,
		}, []string{"operation", "status_class"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "orbit_http_requests_in_flight", Help: "Requests being answered, waiting long polls included.",
		}),
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "orbit_loop_pass_duration_seconds", Help: "Time of the passes of background loops.", Buckets: seconds,
		}, []string{"loop", "outcome"}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_loop_items_total", Help: "What the passes of background loops moved.",
		}, []string{"loop"}),
		nudges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orbit_nudges_total", Help: "Datagrams to and from other replicas, by what became of them.",
		}, []string{"outcome"}),
	}
	if o.Registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.inFlight, m.passes, m.moved, m.nudges,
		collectors.NewDBStatsCollector(o.DB, "batch"), collectors.NewDBStatsCollector(o.Lane, "lane"),
	} {
		if err := o.Registerer.Register(c); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m metrics) observePass(name string, moved int, took time.Duration, err error) {
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	m.passes.WithLabelValues(name, outcome).Observe(took.Seconds())
	m.moved.WithLabelValues(name).Add(float64(moved))
}

func (m metrics) countNudge(outcome nudge.Outcome) { m.nudges.WithLabelValues(string(outcome)).Inc() }

func (m metrics) observeRequest(r *request, took time.Duration) {
	operation := r.operation
	if operation == "" {
		operation = "none"
	}
	m.requests.WithLabelValues(operation, statusClass(r.status)).Observe(took.Seconds())
}

func statusClass(status int) string {
	if status == statusGone {
		return "gone"
	}
	return strconv.Itoa(status/100) + "xx"
}
