// Package openapi carries the public API document.
package openapi

import _ "embed"

// Document is orbit.yaml, as it is published.
//
//go:embed orbit.yaml
var Document []byte
