// Command overlay applies an OpenAPI Overlay to a document: overlay OVERLAY DOCUMENT > RESULT.
//
// It is strict: an action whose target matches nothing is an error, so that the overlay cannot outlive what it was
// written for.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/speakeasy-api/openapi/overlay/loader"
	"gopkg.in/yaml.v3"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: overlay OVERLAY DOCUMENT > RESULT")
		os.Exit(2)
	}
	if err := apply(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

func apply(w io.Writer, overlayPath, documentPath string) error {
	overlay, err := loader.LoadOverlay(overlayPath)
	if err != nil {
		return err
	}
	if err := overlay.Validate(); err != nil {
		return fmt.Errorf("%s: %w", overlayPath, err)
	}
	document, err := loader.LoadSpecification(documentPath)
	if err != nil {
		return err
	}
	warnings, err := overlay.ApplyToStrict(document)
	if err != nil {
		return fmt.Errorf("%s: %w", overlayPath, err)
	}
	if len(warnings) > 0 {
		return fmt.Errorf("%s: %s", overlayPath, strings.Join(warnings, "\n"))
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return err
	}
	return encoder.Close()
}
