package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// demoFiles is what the demo found to work on.
type demoFiles struct {
	paths     []string // slash-separated, relative to the directory, in lexical order
	irregular int      // symbolic links, devices, sockets and pipes, which are not followed or read
	unnamed   int      // names that are not UTF-8, which JSON cannot carry
	closed    int      // directories that may not be read
}

// listFiles finds every regular file under dir but those under skip.
func listFiles(dir, skip string) (found demoFiles, err error) {
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			found.closed++
			return fs.SkipDir
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if same, err := filepath.Abs(name); err == nil && same == skip {
				return fs.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(dir, name)
		switch {
		case err != nil:
			return err
		case !entry.Type().IsRegular():
			found.irregular++
		case !utf8.ValidString(relative):
			found.unnamed++
		default:
			found.paths = append(found.paths, filepath.ToSlash(relative))
		}
		return nil
	})
	return found, err
}

// fileDigest is what a file.digest task comes to.
type fileDigest struct {
	SHA256    string `json:"sha256"`
	Size      int64  `json:"size"`
	Lines     int64  `json:"lines"`      // newline characters, as wc -l counts
	MediaType string `json:"media_type"` // by the WHATWG's sniffing of the first 512 bytes, not by the name
}

// sniffLength is as much as [http.DetectContentType] looks at.
const sniffLength = 512

// digestStream reads a file once, in pieces: the worker's way.
func digestStream(r io.Reader) (fileDigest, error) {
	m := meter{digest: sha256.New()}
	if _, err := io.Copy(&m, r); err != nil {
		return fileDigest{}, err
	}
	return fileDigest{hex.EncodeToString(m.digest.Sum(nil)), m.size, m.lines, http.DetectContentType(m.head)}, nil
}

// meter measures what is written to it.
type meter struct {
	digest hash.Hash
	size   int64
	lines  int64
	head   []byte
}

func (m *meter) Write(p []byte) (int, error) {
	m.digest.Write(p)
	m.size += int64(len(p))
	m.lines += int64(bytes.Count(p, []byte("\n")))
	m.head = append(m.head, p[:min(len(p), sniffLength-len(m.head))]...)
	return len(p), nil
}

// digestWhole reads a file at once: the direct computation that the workers' results are compared with, in other code.
func digestWhole(name string) (fileDigest, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return fileDigest{}, err
	}
	sum := sha256.Sum256(text)
	d := fileDigest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text)), MediaType: http.DetectContentType(text)}
	for _, b := range text {
		if b == '\n' {
			d.Lines++
		}
	}
	return d, nil
}

// unreadable tells a file that cannot be read from other failures: the task then fails for good, with code unreadable.
func unreadable(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p)
}
