package report

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

const (
	pictureWidth = 900
	barLeft      = 330 // where bars begin
	barHeight    = 18
	barGap       = 8
	groupGap     = 15
	valueWidth   = 170 // for the figure after the longest bar
)

// WriteSVG draws a bar for each system, with a line over it from the least to the most of its rounds.
func (r Report) WriteSVG(w io.Writer) error {
	most := 1.0
	for _, rate := range slices.Concat(r.Lives, r.Floors) {
		most = max(most, slices.Max(rate.Rounds))
	}
	p := &picture{scale: (pictureWidth - barLeft - valueWidth) / most, y: 15}
	var sizes []int
	for _, rate := range r.Lives {
		if !slices.Contains(sizes, rate.Tasks) {
			sizes = append(sizes, rate.Tasks)
		}
	}
	for _, size := range sizes {
		p.title(fmt.Sprintf("Tasks from submit to durable end, a second; tasks in a call: %d", size))
		for _, rate := range r.Lives {
			if rate.Tasks == size {
				p.bar(rate, r.perF(rate))
			}
		}
	}
	p.title("One-row commits of the database itself, a second; the dashed line is F, those of MySQL")
	for _, rate := range r.Floors {
		p.bar(rate, r.perF(rate))
	}
	at := barLeft + Median(r.Floors[0].Rounds)*p.scale
	fmt.Fprintf(&p.out, `<line x1="%.1f" y1="40" x2="%.1f" y2="%d" stroke="#cc3311" stroke-dasharray="5 4"/>`+"\n", at, at, p.y-20)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="#222">
<rect width="100%%" height="100%%" fill="#fff"/>
%s</svg>
`, pictureWidth, p.y, p.out.String())
	return err
}

type picture struct {
	out   strings.Builder
	scale float64
	y     int // where the next part begins
}

func (p *picture) title(text string) {
	p.y += groupGap
	fmt.Fprintf(&p.out, `<text x="20" y="%d" font-size="15">%s</text>`+"\n", p.y, html.EscapeString(text))
	p.y += 16
}

func (p *picture) bar(rate Rate, perF float64) {
	color := "#4477aa"
	if rate.System == Subject {
		color = "#228833"
	}
	name := rate.System
	if rate.Load != "" {
		name += ", " + rate.Load
	}
	width, middle := Median(rate.Rounds)*p.scale, p.y+barHeight/2
	least, most := slices.Min(rate.Rounds)*p.scale+barLeft, slices.Max(rate.Rounds)*p.scale+barLeft
	fmt.Fprintf(&p.out, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, barLeft-8, p.y+13, html.EscapeString(name),
		barLeft, p.y, width, barHeight, color)
	fmt.Fprintf(&p.out, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222" stroke-width="1.5"/>`, least, middle, most, middle)
	fmt.Fprintf(&p.out, `<text x="%.1f" y="%d">%s (%.2f F)</text>`+"\n", max(most, barLeft+width)+6, p.y+13, Whole(Median(rate.Rounds)), perF)
	p.y += barHeight + barGap
}
