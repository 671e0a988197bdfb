// Command openapi-lint checks an OpenAPI document against the specification and the rules of a configuration:
// openapi-lint CONFIG DOCUMENT. Any finding fails, hints included: a rule that should not hold is switched off in
// the configuration, with its reason beside it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	baselinter "github.com/speakeasy-api/openapi/linter"
	"github.com/speakeasy-api/openapi/openapi"
	"github.com/speakeasy-api/openapi/openapi/linter"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: openapi-lint CONFIG DOCUMENT")
		os.Exit(2)
	}
	if err := lint(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func lint(ctx context.Context, configPath, documentPath string) error {
	config, err := baselinter.LoadConfigFromFile(configPath)
	if err != nil {
		return err
	}
	rules, err := linter.NewLinter(config)
	if err != nil {
		return err
	}
	file, err := os.Open(documentPath)
	if err != nil {
		return err
	}
	defer file.Close()
	document, invalid, err := openapi.Unmarshal(ctx, file)
	if err != nil {
		return fmt.Errorf("%s: %w", documentPath, err)
	}
	output, err := rules.Lint(ctx, baselinter.NewDocumentInfo(document, documentPath), invalid, nil)
	if err != nil {
		return err
	}
	if len(output.Results) > 0 {
		return errors.New(output.FormatText())
	}
	return nil
}
