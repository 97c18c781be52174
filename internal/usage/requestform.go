package usage

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// reqMaxFormField is the longest value of a form field that steers a call, in bytes.
const reqMaxFormField = 1 << 10

// readForm reads a multipart form: the fields that steer the call, files as media,
// the rest as text. Parsers of forms differ even more than those of JSON; what they
// differ on is refused.
func (r *Request) readForm(body []byte, boundary string) *BadRequest {
	if !reqFormFramed(body, boundary) {
		return &BadRequest{Message: "the body is not a form with the boundary of its Content-Type"}
	}
	var seen [reqNControls]bool
	// Raw parts: others are decoded from quoted-printable without a word.
	form := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			r.settleModels()
			r.generated(false)
			r.mayDraw()
			return nil
		}
		if err != nil {
			return reqBadForm()
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return reqBadForm()
		}
		if bad := r.formPart(part, value, &seen); bad != nil {
			return bad
		}
	}
}

func (r *Request) formPart(part *multipart.Part, value []byte, seen *[reqNControls]bool) *BadRequest {
	lines := part.Header["Content-Disposition"]
	if len(lines) != 1 {
		return reqBadForm()
	}
	_, params, err := mime.ParseMediaType(lines[0])
	if err != nil || reqExtendedName(lines[0]) {
		return reqBadForm()
	}
	_, isFile := params["filename"]
	field, name, same := reqFormField(params["name"])
	if field == reqUnknown {
		if !isFile {
			r.TextBytes += int64(len(value))
			r.formSound(params["name"], string(value))
			if bad := r.formHint(params["name"], string(value)); bad != nil {
				return bad
			}
			return r.formExtra(params["name"], string(value))
		}
		kind := reqFormMedia(params["name"], part.Header.Get("Content-Type"))
		r.inline(kind, int64(len(value)))
		r.playsFile(r.formPlays(kind, part.Header.Get("Content-Type")), value)
		return nil
	}
	switch {
	case !same:
		return reqVariant(name)
	case seen[field]:
		return reqDuplicate(name)
	case isFile || part.Header.Get("Content-Transfer-Encoding") != "" || len(value) > reqMaxFormField:
		return reqWrongType(name, "a plain form field")
	}
	seen[field] = true
	return r.formField(field, name, string(value))
}

// formExtra takes a field that may name other models. PHP and its friends write the
// name of a list with brackets.
func (r *Request) formExtra(name, value string) *BadRequest {
	folded := strings.ToLower(strings.TrimSpace(name))
	folded, _, _ = strings.Cut(folded, "[")
	switch how := reqNamingOf([]byte(folded)); {
	case reqFieldOf([]byte(folded)) == reqExtra:
		return &BadRequest{Param: folded, Message: strconv.Quote(folded) + " must not be given in a form"}
	case how == reqNamesNone, how == reqNamesRoute && value == "fallback":
		return nil
	case gjson.Valid(value) && value != "" && strings.ContainsRune(`"[{`, rune(value[0])):
		s := reqScanner{r: r}
		s.modelsIn([]byte(value), how)
		return s.bad
	case how == reqNamesBelow:
		return nil
	}
	return r.addModel(value)
}

func (r *Request) formField(field reqField, name, value string) *BadRequest {
	switch field {
	case reqModel:
		if r.Model == "" {
			r.Model = value
		} else {
			r.BodyModel = value
		}
	case reqStream:
		switch strings.ToLower(value) {
		case "true", "1", "yes", "on", "t", "y":
			r.Stream = true
		case "false", "0", "no", "off", "f", "n", "":
		default:
			return reqWrongType(name, "true or false")
		}
	default:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > 1<<53 {
			return reqWrongType(name, "a whole number from 0 to 9007199254740992")
		}
		if n > reqMostChoices {
			return reqTooMany(name)
		}
		r.Choices = max(r.Choices, n)
	}
	return nil
}

// reqFormField looks up the fields that steer a call; same tells that the name is
// written in the vendor's case.
func reqFormField(name string) (field reqField, canonical string, same bool) {
	for _, f := range [...]reqField{reqModel, reqStream, reqN} {
		canonical := [...]string{reqModel: "model", reqStream: "stream", reqN: "n"}[f]
		if strings.EqualFold(strings.TrimSpace(name), canonical) {
			return f, canonical, name == canonical
		}
	}
	return reqUnknown, "", true
}

// reqFormMedia tells a file's kind from its field and its type.
func reqFormMedia(name, contentType string) reqMedia {
	switch kind := reqMediaOf([]byte(contentType)); {
	case kind != reqDocument:
		return kind
	case strings.HasPrefix(name, "image") || name == "mask":
		return reqPicture
	default:
		// The APIs that take other files in forms transcribe them.
		return reqRecording
	}
}

// reqFormFramed checks that a form begins with its first boundary, that every
// boundary stands behind CRLF, and that nothing follows the last one.
func reqFormFramed(body []byte, boundary string) bool {
	line := []byte("--" + boundary)
	rest, ok := bytes.CutPrefix(body, line)
	if !ok || !bytes.HasPrefix(rest, []byte("\r\n")) {
		return false
	}
	for {
		i := bytes.Index(rest, line)
		if i < 0 {
			return false
		}
		if i > 0 && rest[i-1] == '\n' && (i < 2 || rest[i-2] != '\r') {
			return false
		}
		ended := i > 1 && rest[i-1] == '\n'
		rest = rest[i+len(line):]
		if ended && bytes.HasPrefix(rest, []byte("--")) {
			return len(bytes.TrimSpace(rest[2:])) == 0
		}
	}
}

// reqExtendedName finds a name in the form of RFC 5987 ("name*"), which some
// parsers read and others do not.
func reqExtendedName(disposition string) bool {
	d := strings.ToLower(disposition)
	return strings.Contains(strings.ReplaceAll(d, "filename*", ""), "name*")
}

func reqBadForm() *BadRequest {
	return &BadRequest{Message: "the form cannot be read"}
}
