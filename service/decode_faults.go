package service

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/ogen-go/ogen/ogenerrors"
	"github.com/ogen-go/ogen/validate"

	"github.com/orbit-run/orbit"
	"github.com/orbit-run/orbit/service/internal/fault"
)

// describeDecoding says in words what the generated decoders and validators did not take, and where; nil if the error is not theirs.
func describeDecoding(err error) *fault.Fault {
	var (
		media     *validate.InvalidContentTypeError
		parameter *ogenerrors.DecodeParamError
		invalid   *validate.Error
		request   *ogenerrors.DecodeRequestError
		params    *ogenerrors.DecodeParamsError
	)
	switch {
	case errors.As(err, &media) && errors.As(err, &request):
		return unsupportedMedia(request.OperationID(), media.ContentType)
	case errors.As(err, &parameter):
		code, detail := explain(parameter.Err)
		return fault.Invalid(string(parameter.In)+"/"+parameter.Name, code, "%s", detail)
	case errors.Is(err, validate.ErrBodyRequired):
		return fault.Invalid("", "required", "this operation needs a body")
	case errors.As(err, &invalid):
		return invalidFields(invalid, pointerIn(err))
	case errors.As(err, &request):
		return undecodable(request.Err)
	case errors.As(err, &params):
		return fault.New(fault.InvalidRequest, "the parameters cannot be read")
	}
	return nil
}

// mediaOf is the one media type that an operation takes its body as.
func mediaOf(operation string) string {
	if operation == "updateQueue" {
		return "application/merge-patch+json"
	}
	return "application/json"
}

func unsupportedMedia(operation, given string) *fault.Fault {
	if given == "" {
		given = "nothing"
	}
	return fault.New(fault.UnsupportedMedia, "this operation takes its body as %s, and the header Content-Type says so; here it says %s", mediaOf(operation), given)
}

// withMediaType finds the one failure of decoding that has no type of its own: a Content-Type that is missing or cannot be read.
func withMediaType(err error, in *http.Request) error {
	var request *ogenerrors.DecodeRequestError
	if !errors.As(err, &request) {
		return err
	}
	given := in.Header.Get("Content-Type")
	if _, _, bad := mime.ParseMediaType(given); bad != nil {
		return unsupportedMedia(request.OperationID(), given)
	}
	return err
}

func invalidFields(invalid *validate.Error, at string) *fault.Fault {
	f := &fault.Fault{Code: fault.InvalidRequest, Errors: fieldsOf(nil, invalid, at)}
	f.Detail = f.Errors[0].Pointer + ": " + f.Errors[0].Detail
	if more := len(f.Errors) - 1; more > 0 {
		f.Detail += fmt.Sprintf(" (and %d more)", more)
	}
	return f
}

// maxFields bounds the faults that are told at once.
const maxFields = 20

func fieldsOf(list []fault.Field, invalid *validate.Error, at string) []fault.Field {
	for _, field := range invalid.Fields {
		if len(list) == maxFields {
			return list
		}
		pointer := at + "/" + escapePointer(strings.Trim(field.Name, "[]"))
		var inner *validate.Error
		if errors.As(field.Error, &inner) {
			list = fieldsOf(list, inner, pointer)
			continue
		}
		code, detail := explain(field.Error)
		list = append(list, fault.Field{Pointer: pointer, Code: code, Detail: detail})
	}
	return list
}

func escapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// The decoders wrap each error in the member they were at; their texts are the only place where that is kept.
var (
	memberText  = regexp.MustCompile(`decode field "((?:[^"\\]|\\.)*)"`)
	unknownText = regexp.MustCompile(`unexpected field "((?:[^"\\]|\\.)*)"`)
	limitText   = regexp.MustCompile(`(less|greater) than (?:minimum |maximum )?(-?[0-9.]+)$`)
)

// textOf bounds the text that is searched: a message may quote a body.
func textOf(err error) string {
	text := err.Error()
	return text[:min(len(text), 4096)]
}

// pointerIn gives the place at which decoding stopped.
func pointerIn(err error) string {
	var pointer strings.Builder
	for _, m := range memberText.FindAllStringSubmatch(textOf(err), 50) {
		pointer.WriteString("/" + escapePointer(m[1]))
	}
	return pointer.String()
}

func undecodable(err error) *fault.Fault {
	at := pointerIn(err)
	if m := unknownText.FindStringSubmatch(textOf(err)); m != nil {
		return fault.Invalid(at+"/"+escapePointer(m[1]), "unknown_field", "this operation knows no member of this name here")
	}
	code, detail := explain(err)
	return fault.Invalid(at, code, "%s", detail)
}

var (
	classText   = regexp.MustCompile(`^\^\[(.+)\]\{([0-9]+),([0-9]+)\}\$$`)
	classMember = regexp.MustCompile(`.-.|.`)
)

// formOf puts a pattern into words where it is a set of characters and a length, as all those of names are.
func formOf(pattern string) string {
	m := classText.FindStringSubmatch(pattern)
	if m == nil {
		return "it does not match " + pattern
	}
	return fmt.Sprintf("it must be %s to %s characters, each one of %s", m[2], m[3], strings.Join(classMember.FindAllString(m[1], -1), " "))
}

// explain gives the rule that a value broke, and what it asks for.
func explain(err error) (code, detail string) {
	var (
		short   *validate.MinLengthError
		long    *validate.MaxLengthError
		pattern *validate.NoRegexMatchError
		instant *time.ParseError
	)
	limit := limitText.FindStringSubmatch(textOf(err))
	switch text := textOf(err); {
	case errors.Is(err, validate.ErrFieldRequired), strings.HasSuffix(text, " not set"), strings.HasPrefix(text, "nil is invalid value"):
		return "required", "it is required"
	case errors.Is(err, orbit.ErrID):
		return "pattern", orbit.ErrID.Error()
	case errors.As(err, &short):
		return "too_short", fmt.Sprintf("its length is %d and must be at least %d", short.Len, short.MinLength)
	case errors.As(err, &long):
		return "too_long", fmt.Sprintf("its length is %d and may be at most %d", long.Len, long.MaxLength)
	case errors.As(err, &pattern):
		return "pattern", formOf(pattern.Pattern.String())
	case errors.As(err, &instant):
		return "date_time", "an instant is written as in 2026-01-31T12:00:00.000000Z (RFC 3339)"
	case limit != nil && limit[1] == "less":
		return "out_of_range", "it must be at least " + limit[2]
	case limit != nil:
		return "out_of_range", "it may be at most " + limit[2]
	case strings.Contains(text, "invalid value: "):
		return "enum", "it is none of the values that are defined for it"
	case strings.HasSuffix(text, " multiple values"):
		return "repeated", "it is given more than once"
	}
	return "type", "it is of another type than is defined for it"
}
