package service

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit/service/internal/body"
	"github.com/orbit-run/orbit/service/internal/fault"
	"github.com/orbit-run/orbit/service/internal/strict"
)

func scan(operation, path, text string) (*body.Body, []byte, error) {
	result := &body.Body{}
	b := scannedBody{
		wire: io.NopCloser(strings.NewReader(text)), length: int64(len(text)), subject: strict.Subject{Operation: operation, Path: path}, result: result,
		deadline: func(time.Duration) {},
	}
	read, err := io.ReadAll(&b)
	return result, read, err
}

// One task is one digest, whether it came singly or in a batch with its key beside it.
func TestItemIsDigestedAsSingle(t *testing.T) {
	single, read, err := scan("submitTask", "/v1/tasks", `{"queue":"mail","type":"t","payload":{"n":0.1000}}`)
	if err != nil || string(read) != `{"queue":"mail","type":"t","payload":{"n":0.1000}}` {
		t.Fatalf("%s %v", read, err)
	}
	batch, _, err := scan("submitTasks", "/v1/tasks:batch", `{"items":[{"type":"t","idempotency_key":"k","queue":"mail","payload":{"n":0.1}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if batch.Items[0].Digest != single.Digest {
		t.Error("the digests differ")
	}
	other, _, err := scan("cancelTask", "/v1/tasks", `{"queue":"mail","type":"t","payload":{"n":0.1000}}`)
	if err != nil || other.Digest == single.Digest {
		t.Errorf("another operation has the same digest (%v)", err)
	}
}

// What is decoded of a batch has every item in its place, and nothing of a refused one that could fail the decoding of others.
func TestRefusedItemsAreBlank(t *testing.T) {
	in := `{"items": [{"a":1}, {"a":1e400}, "` + "\xff" + `", {"b":[2]}]}`
	result, read, err := scan("submitTasks", "/v1/tasks:batch", in)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"items": [{"a":1}, 0          , 0  , {"b":[2]}]}`
	if string(read) != want {
		t.Errorf("%s\nwant %s", read, want)
	}
	for i, refused := range []bool{false, true, true, false} {
		if (result.Items[i].Faults != nil) != refused {
			t.Errorf("item %d: %v", i, result.Items[i].Faults)
		}
	}
}

func TestBodyIsRefused(t *testing.T) {
	big := strings.Repeat(" ", maxBody+1)
	for name, c := range map[string]struct {
		operation, text string
		code            fault.Code
	}{
		"broken":              {"submitTask", `{"a":`, ""},
		"broken batch":        {"submitTasks", `{"items":[{}`, ""},
		"too many items":      {"finishAttempts", `{"items":[` + strings.Repeat("0,", maxItems) + `0]}`, ""},
		"too large":           {"submitTask", big, fault.PayloadTooLarge},
		"too large for batch": {"submitTasks", strings.Repeat(" ", maxBatchBody+1), fault.PayloadTooLarge},
		"larger in a batch":   {"submitTasks", big + `{"items":[]}`, "taken"},
	} {
		_, _, err := scan(c.operation, "/x", c.text)
		var f *fault.Fault
		var faults strict.Faults
		switch {
		case c.code == "taken":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case c.code == "":
			if !errors.As(err, &faults) {
				t.Errorf("%s: %v, want faults of the scan", name, err)
			}
		case !errors.As(err, &f) || f.Code != c.code:
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

// The limit holds for a body that does not tell its length too, and a body that ends early is the caller's fault.
func TestBodyOfUnknownLength(t *testing.T) {
	b := scannedBody{
		wire: io.NopCloser(strings.NewReader(strings.Repeat(" ", maxBody+1))), length: -1, subject: strict.Subject{Operation: "submitTask"}, result: &body.Body{},
		deadline: func(time.Duration) {},
	}
	var f *fault.Fault
	if _, err := io.ReadAll(&b); !errors.As(err, &f) || f.Code != fault.PayloadTooLarge {
		t.Errorf("too large: %v", err)
	}
	b = scannedBody{wire: io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{})), length: 10, result: &body.Body{},
		deadline: func(time.Duration) {}}
	if _, err := io.ReadAll(&b); !errors.As(err, &f) || f.Code != fault.RequestTimeout {
		t.Errorf("ended early: %v", err)
	}
	b = scannedBody{wire: io.NopCloser(strings.NewReader("{}")), encoding: "gzip", result: &body.Body{}}
	if _, err := io.ReadAll(&b); !errors.As(err, &f) || f.Code != fault.UnsupportedMedia {
		t.Errorf("compressed: %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
