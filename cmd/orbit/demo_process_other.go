//go:build !unix

package main

import (
	"errors"
	"syscall"
)

func detached() *syscall.SysProcAttr { return nil }

func (p *process) freeze() error { return errors.ErrUnsupported }
func (p *process) thaw() error   { return errors.ErrUnsupported }
