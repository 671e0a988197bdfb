package loop

import (
	"sync"
	"time"
)

// Alarm ends the pause of a loop. It carries hints: nothing is lost with one but time, because the loop comes by itself.
// All methods are safe for concurrent use; those of nil do nothing.
type Alarm struct {
	rings chan struct{}

	mu    sync.Mutex
	timer *time.Timer
	at    time.Time // when the timer goes off, while it is set
	set   bool
}

// NewAlarm makes an alarm that is not set.
func NewAlarm() *Alarm { return &Alarm{rings: make(chan struct{}, 1)} }

// In has the alarm go off after d, or at once if that is past, unless it goes off earlier anyway. Several before the loop looks are one.
func (a *Alarm) In(d time.Duration) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Now().Add(d) //nolint:forbidigo // a stopwatch
	if a.set && !at.Before(a.at) {
		return
	}
	a.at, a.set = at, true
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
}

func (a *Alarm) ring() {
	a.mu.Lock()
	a.set = false
	a.mu.Unlock()
	select {
	case a.rings <- struct{}{}:
	default:
	}
}

// rung is never ready for nil.
func (a *Alarm) rung() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.rings
}
