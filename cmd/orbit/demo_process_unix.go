//go:build unix

package main

import "syscall"

func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// freeze stops a process where it stands; thaw lets it go on.
func (p *process) freeze() error { return p.command.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw() error   { return p.command.Process.Signal(syscall.SIGCONT) }
