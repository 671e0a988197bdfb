package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

type outputFormat string

// printer writes what a command found, for people or for programs; hints and progress go to err, so that out holds nothing else.
type printer struct {
	format outputFormat
	out    io.Writer
	err    io.Writer
}

// list prints rows under a header, or value as JSON.
func (p *printer) list(value any, header []string, rows [][]string) error {
	if p.format == "json" {
		return p.json(value)
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	if len(header) > 0 {
		fmt.Fprintln(w, strings.Join(header, "\t"))
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return w.Flush()
}

// one prints names and values below each other, or value as JSON.
func (p *printer) one(value any, rows [][]string) error {
	filled := rows[:0]
	for _, row := range rows {
		if row[1] != "" {
			filled = append(filled, row)
		}
	}
	return p.list(value, nil, filled)
}

// json keeps the digits of numbers in business JSON: indenting moves white space only.
func (p *printer) json(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return err
	}
	indented.WriteByte('\n')
	_, err = p.out.Write(indented.Bytes())
	return err
}

// hint tells something that is not part of the answer.
func (p *printer) hint(format string, args ...any) {
	fmt.Fprintf(p.err, format+"\n", args...)
}

// oneLine keeps a cell in its row and a terminal safe from what a stranger wrote.
func oneLine(cell string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, cell)
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}
