package orbit

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Token is a secret of 256 random bits: what a worker shows for its attempt, and the secret part of a credential key.
//
// Only its [Token.Digest] is ever stored. Its text is 43 base62 digits and comes from [Token.Text] alone: printing and
// logging a Token show a placeholder, and encoding one to JSON is an error.
type Token struct{ raw [32]byte }

// ErrToken is what [ParseToken] returns; it does not repeat the text it was given.
var ErrToken = errors.New("a token is exactly 43 base62 digits (0-9, A-Z, a-z)")

const (
	tokenWidth = 43 // the fewest base62 digits that hold 256 bits
	redacted   = "orbit.Token(redacted)"
)

// NewToken makes a token from the operating system's random generator.
func NewToken() Token {
	var t Token
	rand.Read(t.raw[:]) // never fails: the runtime ends the process if the system has no randomness
	return t
}

// ParseToken reads the form of [Token.Text]. Each token has exactly one text.
func ParseToken(s string) (Token, error) {
	var t Token
	if len(s) != tokenWidth || !decodeBase62(t.raw[:], s) {
		return Token{}, ErrToken
	}
	return t, nil
}

// Text is the token as its holder keeps it: 43 base62 digits, most significant first.
func (t Token) Text() string { return string(appendBase62(nil, t.raw[:], tokenWidth)) }

// Digest is the SHA-256 of the token's 32 bytes (not of its text).
func (t Token) Digest() Digest { return sha256.Sum256(t.raw[:]) }

// Format writes a placeholder for every verb.
func (t Token) Format(s fmt.State, _ rune) { io.WriteString(s, redacted) }

// LogValue is a placeholder.
func (t Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText fails, so that no encoder can carry a secret by accident.
func (t Token) MarshalText() ([]byte, error) {
	return nil, errors.New("orbit.Token is a secret: encode Text() where that is meant")
}
