package client

import (
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// doer is the one way to the server. It turns every refusal into a *Problem, so that callers of the generated client and of this
// package judge errors alike.
type doer struct {
	http      *http.Client
	userAgent string
}

func (d *doer) Do(req *http.Request) (*http.Response, error) {
	req.Header.Set("User-Agent", d.userAgent)
	if req.Header.Get("Traceparent") == "" {
		propagation.TraceContext{}.Inject(req.Context(), propagation.HeaderCarrier(req.Header))
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, readProblem(resp)
	}
	return resp, nil
}
