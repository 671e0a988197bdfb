package orbit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/big"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTokenText(t *testing.T) {
	for range 200 {
		token := NewToken()
		text := token.Text()
		// math/big writes base 62 with lower-case before upper-case.
		want := strings.Map(swapCase, new(big.Int).SetBytes(token.raw[:]).Text(62))
		if want = strings.Repeat("0", 43-len(want)) + want; text != want {
			t.Fatalf("Text of %x = %s, want %s", token.raw, text, want)
		}
		back, err := ParseToken(text)
		if err != nil || back != token {
			t.Fatalf("ParseToken(%s): %v", text, err)
		}
		if token.Digest() != sha256.Sum256(token.raw[:]) {
			t.Fatal("Digest is not the SHA-256 of the bytes")
		}
	}
}

func swapCase(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z':
		return r - 'a' + 'A'
	case 'A' <= r && r <= 'Z':
		return r - 'A' + 'a'
	}
	return r
}

func TestParseTokenBounds(t *testing.T) {
	highest := Token{raw: [32]byte(bytes.Repeat([]byte{0xff}, 32))}
	text := highest.Text()
	if back, err := ParseToken(text); err != nil || back != highest {
		t.Fatalf("ParseToken(%s): %v", text, err)
	}
	next := text[:42] + string(text[42]+1) // one above 2^256-1
	for _, bad := range []string{next, strings.Repeat("z", 43), "", text[1:], "0" + text, text[:42] + "_", text[:42] + "-"} {
		if _, err := ParseToken(bad); !errors.Is(err, ErrToken) {
			t.Errorf("ParseToken(%q): %v", bad, err)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	key := NewCredentialKey(NewID(time.UnixMilli(1)), NewID(time.UnixMilli(2)))
	secret := key.Secret.Text()
	hex := fmt.Sprintf("%x", key.Secret.raw)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "token", key.Secret, "key", key, "pointer", &key, "in", struct{ T Token }{key.Secret})
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "token", key.Secret, "key", key, "pointer", &key)
	shown := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb+verb+verb, key.Secret, key, struct{ K *Token }{&key.Secret})
	}
	if strings.Contains(shown, secret) || strings.Contains(shown, hex) {
		t.Errorf("the secret shows in %s", shown)
	}
	if !strings.Contains(shown, key.Credential.String()) {
		t.Errorf("the credential's id does not show in %s", shown)
	}
	if b, err := json.Marshal(key); err == nil {
		t.Errorf("a key was encoded: %s", b)
	}
}

func TestCredentialKey(t *testing.T) {
	pattern := regexp.MustCompile(CredentialKeyPattern)
	for range 100 {
		key := NewCredentialKey(NewID(time.UnixMilli(1)), NewID(time.UnixMilli(2)))
		text := key.Text()
		if len(text) != CredentialKeyLength {
			t.Fatalf("%d bytes, want %d", len(text), CredentialKeyLength)
		}
		if found := pattern.FindString("token = \"" + text + "\";"); found != text {
			t.Fatalf("the pattern found %q in a line with %s", found, text)
		}
		back, err := ParseCredentialKey(text)
		if err != nil || back != key {
			t.Fatalf("ParseCredentialKey(%s) = %v, %v", text, back, err)
		}
	}
}

// The expected text was worked out apart from this package (zlib's crc32 and a long division in Python).
func TestCredentialKeyKnown(t *testing.T) {
	key := CredentialKey{Namespace: ID{15: 1}, Credential: ID{15: 2}, Secret: Token{raw: [32]byte{31: 61}}}
	const want = "orb_00000000000000000000000000000001_00000000000000000000000000000002_000000000000000000000000000000000000000000z_2yFchD"
	if got := key.Text(); got != want {
		t.Errorf("Text = %s, want %s", got, want)
	}
}

func TestCredentialKeyTypos(t *testing.T) {
	text := NewCredentialKey(NewID(time.UnixMilli(1)), NewID(time.UnixMilli(2))).Text()
	for i := range len(text) {
		replacement := byte('0')
		if text[i] == '0' {
			replacement = '1'
		}
		typo := text[:i] + string(replacement) + text[i+1:]
		want := ErrKeyChecksum
		if i < 4 || text[i] == '_' {
			want = ErrKeyMalformed
		}
		if _, err := ParseCredentialKey(typo); !errors.Is(err, want) {
			t.Errorf("a typo at %d: %v, want %v", i, err, want)
		} else if strings.Contains(err.Error(), typo[4:36]) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}
}

func TestCredentialKeyMalformed(t *testing.T) {
	text := NewCredentialKey(NewID(time.UnixMilli(1)), NewID(time.UnixMilli(2))).Text()
	tooLarge := text[:70] + strings.Repeat("z", 43)
	for _, bad := range []string{
		"", "orb_", text[1:], text + "0", " " + text, strings.ToUpper(text), "orc" + text[3:],
		text[:10] + "A" + text[11:], text[:80] + "-" + text[81:], text[:len(text)-1] + "-",
		strings.Replace(text, "_", "", 1) + "0", text[:36] + "a" + text[36:len(text)-1],
		withChecksum(tooLarge),
	} {
		if _, err := ParseCredentialKey(bad); !errors.Is(err, ErrKeyMalformed) {
			t.Errorf("ParseCredentialKey(%q): %v", bad, err)
		}
	}
}

func withChecksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	return string(appendBase62([]byte(body+"_"), []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, checksumWidth))
}

func TestCredentialKeyPage(t *testing.T) {
	page, err := os.ReadFile("docs/credential-key.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n"+CredentialKeyPattern+"\n") || !strings.Contains(string(page), fmt.Sprint(CredentialKeyLength, " characters")) {
		t.Error("docs/credential-key.md does not give the pattern and the length")
	}
	sample := regexp.MustCompile(CredentialKeyPattern).FindString(string(page))
	if _, err := ParseCredentialKey(sample); err != nil {
		t.Errorf("the page's sample %q: %v", sample, err)
	}
}
