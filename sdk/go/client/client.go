package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbit-run/orbit/sdk/go/api"
)

// Client is one server and one credential. It is safe for use by many goroutines and keeps connections open between
// calls: make one for a process.
type Client struct {
	// API is the generated client: every operation of the protocol with its own types. Its errors hold a [*Problem]
	// wherever the server refused. It sends each request once.
	API *api.Client

	retryFor time.Duration
}

// Option changes what [New] makes.
type Option func(*options)

type options struct {
	http      *http.Client
	timeout   time.Duration
	retryFor  time.Duration
	userAgent string
	tracer    trace.TracerProvider
	meter     metric.MeterProvider
}

// WithHTTPClient sends requests through c, whose own time-out then holds in place of [WithTimeout]. A claim that waits
// takes up to 30 s.
func WithHTTPClient(c *http.Client) Option { return func(o *options) { o.http = c } }

// WithTimeout limits one request, from the first byte sent to the last one read: 60 s unless set. Claims wait up to 30 s, so
// that a shorter limit than that cuts them.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithRetryFor limits how long one call of this package repeats after unknown outcomes: 2 minutes unless set. Zero sends
// once; a negative value repeats until the context ends.
func WithRetryFor(d time.Duration) Option { return func(o *options) { o.retryFor = d } }

// WithUserAgent puts the program's own product, such as "billing/2.1", before the SDK's in the User-Agent header.
func WithUserAgent(product string) Option { return func(o *options) { o.userAgent = product } }

// WithTracerProvider makes a span for each request with tp instead of the global provider.
func WithTracerProvider(tp trace.TracerProvider) Option { return func(o *options) { o.tracer = tp } }

// WithMeterProvider counts and times requests with mp instead of the global provider.
func WithMeterProvider(mp metric.MeterProvider) Option { return func(o *options) { o.meter = mp } }

// New makes a client for the server at baseURL, such as "https://orbit.example.com", with a credential key ("orb_…"). It
// sends nothing: [Client.Credential] proves that the key works.
func New(baseURL, key string, opts ...Option) (*Client, error) {
	o := options{timeout: time.Minute, retryFor: 2 * time.Minute}
	for _, opt := range opts {
		opt(&o)
	}
	if err := checkBaseURL(baseURL); err != nil {
		return nil, err
	}
	if key == "" {
		return nil, errors.New("orbit: the credential key is empty")
	}
	if o.http == nil {
		o.http = &http.Client{Transport: newTransport(), Timeout: o.timeout}
	}
	doer := &doer{http: o.http, userAgent: strings.TrimSpace(o.userAgent + " " + sdkProduct())}
	generated, err := api.NewClient(strings.TrimSuffix(baseURL, "/"), credentialKey(key),
		api.WithClient(doer), api.WithTracerProvider(o.tracer), api.WithMeterProvider(o.meter))
	if err != nil {
		return nil, fmt.Errorf("orbit: %w", err)
	}
	return &Client{API: generated, retryFor: o.retryFor}, nil
}

// Credential tells who the key is: namespace, actor, actions, queue patterns. It needs no action.
func (c *Client) Credential(ctx context.Context) (*api.Caller, error) {
	return Retry(ctx, func(ctx context.Context) (*api.Caller, error) {
		return c.API.GetCredential(ctx, api.GetCredentialParams{})
	}, For(c.retryFor))
}

func checkBaseURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("orbit: base URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("orbit: base URL %q: want http://host or https://host", s)
	}
	return nil
}

// newTransport differs from the default one where a server that vanished without a word must be noticed, and where a worker
// and its reports share one host.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

type credentialKey string

func (k credentialKey) CredentialKey(context.Context, api.OperationName) (api.CredentialKey, error) {
	return api.CredentialKey{Token: string(k)}, nil
}

const modulePath = "github.com/orbit-run/orbit/sdk/go"

func sdkProduct() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == modulePath && m.Version != "" {
				return "orbit-go/" + strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return "orbit-go"
}
