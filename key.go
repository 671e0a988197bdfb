package orbit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

// CredentialKey is what a caller shows to be let in:
//
//	orb_<namespace>_<credential>_<secret>_<checksum>
//
// Namespace and credential are ids (32 lower-case hexadecimal digits each), so that one look-up by primary key finds
// the credential. The secret is a [Token] (43 base62 digits). The checksum is the CRC-32 (IEEE) of everything before
// its underscore, as 6 base62 digits: a mistyped key is told from a wrong one without asking the database.
//
// The key is a secret: printing and logging it show the two ids only, and its text comes from [CredentialKey.Text] alone.
type CredentialKey struct {
	Namespace  ID
	Credential ID
	Secret     Token
}

// CredentialKeyPattern is the regular expression (RE2 and PCRE) by which a secret scanner finds leaked keys. A match is
// a real key, rather than text that looks like one, exactly when [ParseCredentialKey] accepts it.
const CredentialKeyPattern = `\borb_[0-9a-f]{32}_[0-9a-f]{32}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}\b`

// CredentialKeyLength is the length of every key's text in bytes.
const CredentialKeyLength = len(keyPrefix) + 32 + 1 + 32 + 1 + tokenWidth + 1 + checksumWidth

// Errors of [ParseCredentialKey]. Neither repeats the text it was given.
var (
	// ErrKeyMalformed: the text does not have the shape of a key.
	ErrKeyMalformed = errors.New("not a credential key: it has the form orb_<namespace>_<credential>_<secret>_<checksum>")
	// ErrKeyChecksum: the shape is right and the checksum is not, as after a typing or copying mistake.
	ErrKeyChecksum = errors.New("the credential key's checksum does not match: a character is wrong, missing or moved")
)

const (
	keyPrefix     = "orb_"
	checksumWidth = 6 // the fewest base62 digits that hold 32 bits
)

// NewCredentialKey makes a key with a fresh secret for a credential.
func NewCredentialKey(namespace, credential ID) CredentialKey {
	return CredentialKey{Namespace: namespace, Credential: credential, Secret: NewToken()}
}

// ParseCredentialKey reads the form of [CredentialKey.Text]. It judges the text alone: that the key exists and its
// secret is right is for the caller to find out, by comparing [Token.Digest] in constant time.
func ParseCredentialKey(s string) (CredentialKey, error) {
	var k CredentialKey
	if len(s) != CredentialKeyLength || !strings.HasPrefix(s, keyPrefix) {
		return CredentialKey{}, ErrKeyMalformed
	}
	parts := strings.Split(s[len(keyPrefix):], "_")
	if len(parts) != 4 || len(parts[2]) != tokenWidth {
		return CredentialKey{}, ErrKeyMalformed
	}
	var checksum [4]byte
	if !decodeLowerHex(k.Namespace[:], parts[0]) || !decodeLowerHex(k.Credential[:], parts[1]) ||
		!isBase62(parts[2]) || !isBase62(parts[3]) {
		return CredentialKey{}, ErrKeyMalformed
	}
	body := s[:len(s)-checksumWidth-1]
	if !decodeBase62(checksum[:], parts[3]) || binary.BigEndian.Uint32(checksum[:]) != crc32.ChecksumIEEE([]byte(body)) {
		return CredentialKey{}, ErrKeyChecksum
	}
	secret, err := ParseToken(parts[2])
	if err != nil {
		return CredentialKey{}, ErrKeyMalformed
	}
	k.Secret = secret
	return k, nil
}

// Text is the whole key, secret included, as it is shown once to its owner.
func (k CredentialKey) Text() string {
	b := make([]byte, 0, CredentialKeyLength)
	b = append(b, keyPrefix...)
	b = append(b, k.Namespace.String()...)
	b = append(b, '_')
	b = append(b, k.Credential.String()...)
	b = append(b, '_')
	b = append(b, k.Secret.Text()...)
	checksum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b))
	b = append(b, '_')
	return string(appendBase62(b, checksum, checksumWidth))
}

// Format writes the key without its secret for every verb.
func (k CredentialKey) Format(s fmt.State, _ rune) { io.WriteString(s, k.public()) }

// LogValue is the key without its secret.
func (k CredentialKey) LogValue() slog.Value { return slog.StringValue(k.public()) }

func (k CredentialKey) public() string {
	return keyPrefix + k.Namespace.String() + "_" + k.Credential.String() + "_redacted"
}

func isBase62(s string) bool {
	for i := range len(s) {
		if _, ok := base62Value(s[i]); !ok {
			return false
		}
	}
	return true
}
