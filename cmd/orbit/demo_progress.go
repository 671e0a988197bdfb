package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far something is: a bar on a terminal, else a line for each tenth.
type progress struct {
	bar   *progressbar.ProgressBar
	out   io.Writer
	what  string
	total int
	done  int
	told  int // tenths
}

func newProgress(out io.Writer, what string, total int) *progress {
	p := &progress{out: out, what: what, total: total}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(fmt.Sprintf("%-12s", what)),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionOnCompletion(func() { fmt.Fprintln(out) }))
	}
	return p
}

// set tells of done out of the total. It never goes back.
func (p *progress) set(done int) {
	done = min(done, p.total)
	if done <= p.done && done < p.total || p.told == 10 {
		return
	}
	p.done = done
	if p.bar != nil {
		if done == p.total {
			p.told = 10
		}
		_ = p.bar.Set(done) // a terminal that is gone is no reason to stop
		return
	}
	tenths := 10
	if p.total > 0 {
		tenths = done * 10 / p.total
	}
	if tenths > p.told {
		p.told = tenths
		fmt.Fprintf(p.out, "%-12s %d of %d\n", p.what, done, p.total)
	}
}

// say prints a line, above the bar where there is one.
func (p *progress) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if p.bar == nil {
		fmt.Fprintln(p.out, line)
		return
	}
	_ = p.bar.Clear()
	fmt.Fprintln(p.out, line)
	_ = p.bar.RenderBlank()
}
