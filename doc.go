// Package orbit holds the values that every part of Orbit agrees on: ids, digests, tokens, credential keys and states.
//
// It is the leaf of the import graph: it imports the standard library alone, and generated code may import it.
package orbit
