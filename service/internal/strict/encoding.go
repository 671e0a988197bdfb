package strict

// The digest is the SHA-256 of the canonical encoding of the array [Version, operation, path, body], without the last
// element if there is no body. The encoding of each value ends where it says it ends, so that no two values share one
// and none is the beginning of another:
//
//	null, true, false   n  t  f
//	number              d [-] digits e power ;    value = ±digits · 10^power, no zero at either end of digits; zero is d0e0;
//	string              s length : bytes          its UTF-8, length in bytes
//	array               [ values ]
//	object              { names and values }      by the bytes of the names

// Version is the first element of every digest's array. Another algorithm would have another.
const Version = "orbit.digest.v1"

// begin appends the encoding of the array up to where the body stands.
func (subject Subject) begin(out []byte) []byte {
	out = append(out, '[')
	for _, text := range [...]string{Version, subject.Operation, subject.Path} {
		out = append(appendTextHead(out, len(text)), text...)
	}
	return out
}
