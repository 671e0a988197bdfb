//go:build unix

package main

import (
	"syscall"
	"time"
)

// ownCPU is the seconds of CPU that this process has used.
func ownCPU() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
