package harness

import (
	"runtime"
	"strings"
)

// ParkedClaims is how many long polls of this process wait for a task: whoever submits one now finds them.
func ParkedClaims() int { return goroutinesAt("select", "pulse.(*Service).awaitWork(") }

// HeldClaims is how many long polls of this process are over and wait for whoever is giving them tasks.
func HeldClaims() int { return goroutinesAt("chan receive", "pulse.(*waiters).unpark(") }

// goroutinesAt counts the goroutines that wait in a function. It sees what a service has no other reason to show.
func goroutinesAt(state, function string) (n int) {
	stacks := make([]byte, 64<<10)
	for {
		size := runtime.Stack(stacks, true)
		if size < len(stacks) {
			stacks = stacks[:size]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		head, frames, _ := strings.Cut(stack, "\n")
		at, _, _ := strings.Cut(frames, "\n")
		if strings.Contains(head, "["+state) && strings.Contains(at, function) {
			n++
		}
	}
	return n
}
