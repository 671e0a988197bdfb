package page

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/fault"
)

func TestCursorComesBack(t *testing.T) {
	walk, id := Of("listThings", "a", ""), orbit.NewID(time.UnixMilli(1700000000000))
	got, err := walk.Before(walk.Cursor(id[:]))
	if err != nil || got != id {
		t.Fatalf("Before = %v, %v; want %v", got, err, id)
	}
	if first, err := walk.Before(""); err != nil || first.String() != strings.Repeat("ff", 16) {
		t.Fatalf("Before of no cursor = %v, %v; want the greatest id", first, err)
	}
}

func TestForeignCursorIsRefused(t *testing.T) {
	id := orbit.NewID(time.UnixMilli(1700000000000))
	walk := Of("listThings", "a", "")
	other := walk.Cursor(id[:])
	long := walk.Cursor(append(id[:], 0))
	for name, cursor := range map[string]string{
		"other operation":   Of("listOthers", "a", "").Cursor(id[:]),
		"other filter":      Of("listThings", "b", "").Cursor(id[:]),
		"filters moved":     Of("listThings", "", "a").Cursor(id[:]),
		"filters joined":    Of("listThings", "a\x00").Cursor(id[:]),
		"cut":               other[:len(other)-2],
		"other position":    long,
		"not base64":        "*" + other[1:],
		"base64 with tail":  other + "A",
		"other text format": other + "=",
		"other version":     "A" + strings.Repeat("A", len(other)-1),
	} {
		_, err := walk.Before(cursor)
		var f *fault.Fault
		if !errors.As(err, &f) || f.Code != fault.CursorInvalid {
			t.Errorf("%s: %v, want cursor_invalid", name, err)
		}
	}
}

func TestSize(t *testing.T) {
	for limit, want := range map[int]int{0: 50, 1: 1, 499: 499, 500: 500, 501: 500, 1 << 40: 500} {
		if got := Size(limit); got != want {
			t.Errorf("Size(%d) = %d, want %d", limit, got, want)
		}
	}
}

func TestPositionOfAnySize(t *testing.T) {
	walk := Of("listThings")
	position := []byte("0123456789")
	got, err := walk.Position(walk.Cursor(position), len(position))
	if err != nil || !bytes.Equal(got, position) {
		t.Fatalf("Position = %q, %v", got, err)
	}
}
