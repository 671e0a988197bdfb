// Package client talks to an Orbit server.
//
// [Client.API] is the whole protocol, one method an operation, generated from the public OpenAPI document. Around it this
// package adds what every program needs: access by credential key, time-outs, trace context, errors as [*Problem],
// submitting under an idempotency key with repeats, and iterators over lists and over the event feed.
//
// # Repeating
//
// A request can end in three ways: with a reply, with a definite no, or without anybody knowing, as after a cut connection.
// [Retryable] tells the third from the second. After an unknown outcome the one safe answer is the same request again under the
// same key; [Retry] does that for any call, and Submit and SubmitBatch do it by themselves. No function of this package makes
// a key on its own: a key made anew for a repeat would be a second task.
//
// # Digits
//
// Payloads, results and progress are [encoding/json.RawMessage] both ways: Orbit returns them digit by digit as they were
// sent. Decode numbers that do not fit a float64 into [encoding/json.Number] or a decimal type.
package client
