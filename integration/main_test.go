package integration_test

import (
	"testing"

	"github.com/orbit-run/orbit/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
