package usage

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var frameHeader = http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}

// frameHeaders makes headers of strings from names and values.
func frameHeaders(pairs ...string) []byte {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		b = append(b, byte(len(pairs[i])))
		b = append(b, pairs[i]...)
		b = append(b, frameString)
		b = binary.BigEndian.AppendUint16(b, uint16(len(pairs[i+1])))
		b = append(b, pairs[i+1]...)
	}
	return b
}

// message makes a message of AWS's framing.
func message(headers []byte, payload string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(framePrelude+len(headers)+len(payload)+frameChecksum))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// event makes an event of the Converse API.
func event(kind, payload string) []byte {
	return message(frameHeaders(":event-type", kind, ":content-type", "application/json", ":message-type", "event"), payload)
}

// chunk makes an event that wraps a document of a family of models.
func chunk(document string) []byte {
	return event("chunk", `{"bytes":"`+base64.StdEncoding.EncodeToString([]byte(document))+`","p":"abcdefgh"}`)
}

// frames joins messages.
func frames(messages ...[]byte) []byte { return bytes.Join(messages, nil) }

var (
	conversePiece = event("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"Hello"},"p":"abc"}`)
	converseStop  = event("messageStop", `{"p":"abcd","stopReason":"end_turn"}`)
	converseUsage = event("metadata", `{"metrics":{"latencyMs":6},"usage":{"inputTokens":10,"outputTokens":2,"totalTokens":12}}`)
	converseWhole = Report{Usage: Usage{Input: 10, Output: 2}, Found: true, Complete: true, Delivered: 5}
)

func readFrames(body []byte, finished bool, size int) Report {
	return readPieces(frameHeader, http.StatusOK, body, finished, func(int) int { return size })
}

func TestFrameHeadersAreSkippedByType(t *testing.T) {
	odd := []byte{}
	for kind, size := range frameValueSizes {
		odd = append(odd, 3, 'o', 'd', byte('a'+kind), byte(kind))
		if size < 0 {
			odd = append(odd, 0, 5)
			size = 5
		}
		odd = append(odd, make([]byte, size)...)
	}
	long := frameHeaders(strings.Repeat(":event-type", 20), strings.Repeat("chunk", 9000), ":empty", "")
	typed := append([]byte{13}, ":message-type\x06\x00\x09exception"...) // bytes are no string
	headers := bytes.Join([][]byte{odd, long, typed, frameHeaders(":event-type", "metadata")}, nil)
	body := frames(message(nil, "{}"), conversePiece, converseStop, message(headers,
		`{"usage":{"inputTokens":10,"outputTokens":2}}`))
	for _, size := range []int{1, 7, 1024, len(body)} {
		if got := readFrames(body, true, size); !reflect.DeepEqual(got, converseWhole) {
			t.Errorf("pieces of %d: got %+v, want %+v", size, got, converseWhole)
		}
	}
}

func TestFramesAreKnownByTheirBytes(t *testing.T) {
	body := frames(conversePiece, converseStop, converseUsage)
	for _, kind := range []string{"", "application/json", "text/event-stream", "application/octet-stream"} {
		got := readAll(http.Header{"Content-Type": {kind}}, http.StatusOK, body, 5)
		if !reflect.DeepEqual(got, converseWhole) {
			t.Errorf("%q: got %+v, want %+v", kind, got, converseWhole)
		}
	}
	other := []byte("\x00\x00\x00\x18ftypmp42" + strings.Repeat("x", 50))
	if got := readAll(http.Header{}, http.StatusOK, other, 5); !reflect.DeepEqual(got, Report{Complete: true, Delivered: 62}) {
		t.Errorf("something else that begins with a zero: got %+v", got)
	}
	plain := []byte(`{"usage":{"inputTokens":10,"outputTokens":2}}`)
	if got := readAll(frameHeader, http.StatusOK, plain, 5); got.Usage != converseWhole.Usage {
		t.Errorf("JSON that is labelled as an event stream: got %+v", got)
	}
}

// TestDamagedFrameIsNotBelieved flips every bit of the message that counts.
func TestDamagedFrameIsNotBelieved(t *testing.T) {
	head := frames(conversePiece, converseStop)
	want := Report{Delivered: 5}
	for i := range len(converseUsage) * 8 {
		damaged := bytes.Clone(converseUsage)
		damaged[i/8] ^= 1 << (i % 8)
		body := frames(head, damaged, converseUsage)
		if got := readFrames(body, true, 64); !reflect.DeepEqual(got, want) {
			t.Fatalf("bit %d of byte %d: got %+v, want %+v", i%8, i/8, got, want)
		}
	}
}

func TestDamagedChunkIsNotBelieved(t *testing.T) {
	piece := chunk(`{"generation":"Hello","prompt_token_count":10,"generation_token_count":1,"stop_reason":null}`)
	last := chunk(`{"generation":"","prompt_token_count":null,"generation_token_count":2,"stop_reason":"stop",` +
		`"amazon-bedrock-invocationMetrics":{"inputTokenCount":10,"outputTokenCount":2}}`)
	if got := readFrames(frames(piece, last), true, 9); !reflect.DeepEqual(got, converseWhole) {
		t.Errorf("undamaged: got %+v, want %+v", got, converseWhole)
	}
	last[len(last)-1]++
	want := Report{Usage: Usage{Input: 10, Output: 1}, Found: true, Delivered: 5}
	if got := readFrames(frames(piece, last), true, 9); !reflect.DeepEqual(got, want) {
		t.Errorf("damaged: got %+v, want %+v", got, want)
	}
}

func TestCutFramesAreNotComplete(t *testing.T) {
	body := frames(conversePiece, converseStop, converseUsage)
	for n := range body {
		for _, finished := range []bool{false, true} {
			got := readFrames(body[:n], finished, 50)
			between := n == 0 || n == len(conversePiece)+len(converseStop)
			if got.Complete && (!finished || !between) {
				t.Fatalf("%d bytes, finished %v: got complete", n, finished)
			}
		}
	}
	if got := readFrames(body, false, 50); !reflect.DeepEqual(got, converseWhole) {
		t.Errorf("cut behind the last word: got %+v, want %+v", got, converseWhole)
	}
}

func TestExceptionsFail(t *testing.T) {
	for name, headers := range map[string][]byte{
		"exception": frameHeaders(":exception-type", "throttlingException", ":message-type", "exception"),
		"error":     frameHeaders(":error-code", "500", ":message-type", "error"),
	} {
		body := frames(conversePiece, message(headers, `{"message":"usage","usage":{"inputTokens":1,"outputTokens":1}}`))
		want := Report{Complete: true, Failed: true, Delivered: 5}
		if got := readFrames(body, true, 3); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestChunksAreDecodedWhateverTheirSpelling(t *testing.T) {
	const document = `{"generation":"Hello??>>","prompt_token_count":10,"generation_token_count":2,"stop_reason":"stop"}`
	want := Report{Usage: Usage{Input: 10, Output: 2}, Found: true, Complete: true, Delivered: 9}
	coded := base64.StdEncoding.EncodeToString([]byte(document))
	if !strings.ContainsAny(coded, "+/") {
		t.Fatal("the document needs no digit beyond letters")
	}
	tests := map[string]string{
		"plain":          `{"bytes":"` + coded + `"}`,
		"padding first":  `{"p":"ab\"c","bytes":"` + coded + `"}`,
		"spaced":         " { \"bytes\" : \"" + coded + "\" , \"x\" : [1,{\"bytes\":\"eyJ9\"}] }\n",
		"escaped slash":  `{"bytes":"` + strings.ReplaceAll(coded, "/", `\/`) + `"}`,
		"escaped digits": `{"bytes":"` + strings.NewReplacer("+", `\u002b`, "/", `\u002F`, "=", `\u003d`).Replace(coded) + `"}`,
		"escaped name":   `{"b\u0079tes":"` + coded + `"}`,
		"URL's alphabet": `{"bytes":"` + base64.RawURLEncoding.EncodeToString([]byte(document)) + `"}`,
	}
	for name, payload := range tests {
		for _, size := range []int{1, 2, 3, 5, 1000} {
			if got := readFrames(event("chunk", payload), true, size); !reflect.DeepEqual(got, want) {
				t.Errorf("%s in pieces of %d: got %+v, want %+v", name, size, got, want)
			}
		}
	}
}

func TestBase64IsDecodedInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "bytes")
		encoding := rapid.SampledFrom([]*base64.Encoding{
			base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
		}).Draw(t, "encoding")
		raw := []byte(`"` + encoding.EncodeToString(want) + `"`)
		var b base64Reader
		var got []byte
		for len(raw) > 0 {
			n := min(rapid.IntRange(1, 4000).Draw(t, "size"), len(raw))
			b.decode(raw[:n], func(p []byte) { got = append(got, p...) })
			raw = raw[n:]
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	})
}

func TestFramesDoNotDependOnPieces(t *testing.T) {
	part := rapid.SampledFrom([][]byte{
		conversePiece, converseStop, converseUsage, chunk(`{"outputText":"x","inputTextTokenCount":3}`),
		chunk(`{"type":"message_start","message":{"model":"a","usage":{"input_tokens":9}}}`),
		chunk(`{"type":"message_delta","usage":{"output_tokens":4}}`), chunk("not a document"),
		message(nil, ""), message(nil, "{}"), message(frameHeaders(":message-type", "exception"), "{}"),
		event("chunk", `{"bytes":"!!\n\u00e9`), event("metadata", `{"usage":{"inputTokens":7,`),
		{0},
		{0, 0, 0},
		[]byte("{}"), []byte("data: {}\n\n"),
	})
	rapid.Check(t, func(t *rapid.T) {
		body := frames(rapid.SliceOfN(part, 0, 12).Draw(t, "messages")...)
		finished := rapid.Bool().Draw(t, "finished")
		want := readFrames(body, finished, max(1, len(body)))
		sizes := rapid.SliceOfN(rapid.IntRange(1, 60), 1, 20).Draw(t, "sizes")
		i := 0
		got := readPieces(frameHeader, http.StatusOK, body, finished, func(int) int {
			i++
			return sizes[i%len(sizes)]
		})
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nin pieces %+v\nwhole     %+v", body, got, want)
		}
	})
}

// TestHugeFrameTakesNoMemory reads messages of 16 MiB.
func TestHugeFrameTakesNoMemory(t *testing.T) {
	filler := strings.Repeat("iVBORw0KGgo=", 16<<20/12)
	usage := `","usage":{"inputTokens":10,"outputTokens":2}}`
	for name, body := range map[string][]byte{
		"event": event("metadata", `{"image":"`+filler+usage),
		"chunk": chunk(`{"image":"` + filler[:12<<20] + usage),
	} {
		var got Report
		heap := heapOf(func() {
			r := NewResponse()
			r.Start(http.StatusOK, frameHeader)
			for rest := body; len(rest) > 0; {
				n := min(len(rest), 32<<10)
				r.Write(rest[:n])
				rest = rest[n:]
			}
			got = r.Close(true)
			r.Release()
		})
		if got.Usage != converseWhole.Usage || !got.Complete {
			t.Errorf("%s: got %+v", name, got)
		}
		if heap > 1<<20 {
			t.Errorf("%s: got %d bytes allocated", name, heap)
		}
	}
}

// frameEvents are n events of a stream, by the API.
func frameEvents(n int) map[string][][]byte {
	converse, invoke := make([][]byte, n), make([][]byte, n)
	for i := range n {
		converse[i] = event("contentBlockDelta", fmt.Sprintf(
			`{"contentBlockIndex":0,"delta":{"text":" word%d"},"p":"abcdefghijklmnop"}`, i))
		invoke[i] = chunk(fmt.Sprintf(
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word%d"}}`, i))
	}
	return map[string][][]byte{"converse": converse, "invoke": invoke}
}

func TestFramesDoNotAllocate(t *testing.T) {
	for name, messages := range frameEvents(50) {
		stream := frames(messages...)
		r := NewResponse()
		r.Start(http.StatusOK, frameHeader)
		r.Write(stream)
		if n := testing.AllocsPerRun(20, func() { r.Write(stream) }); n != 0 {
			t.Errorf("%s: got %v allocations for 50 events, want 0", name, n)
		}
		r.Release()
	}
}

// FuzzEventStream reads the input as it is and, because hardly any change of a stream
// survives its checksums, also as the headers and the payload of sound messages.
func FuzzEventStream(f *testing.F) {
	for _, s := range samples(f) {
		if strings.Contains(s.Type, "eventstream") {
			f.Add(s.body, []byte(`{}`), uint8(5))
		}
	}
	f.Add(frameHeaders(":event-type", "chunk"), []byte(`{"bytes":"eyJvdXRwdXRUZXh0IjoieCJ9","p":"a"}`), uint8(1))
	f.Add(frameHeaders(":event-type", "metadata", ":message-type", "event"),
		[]byte(`{"usage":{"inputTokens":10,"outputTokens":2,"cacheDetails":[{"ttl":"1h","inputTokens":1}]}}`), uint8(40))
	f.Add(frameHeaders(":message-type", "exception"), []byte(`{"message":"x"}`), uint8(3))
	f.Add([]byte("\x01x\x00\x01y\x08\x00\x00\x00\x00\x00\x00\x00\x00"), []byte(`{"generation":"x"}`), uint8(2))
	f.Fuzz(func(t *testing.T, head, payload []byte, size uint8) {
		sound := message(head, string(payload))
		for _, body := range [][]byte{head, sound, frames(conversePiece, sound, sound, converseUsage)} {
			want := readFrames(body, true, max(1, len(body)))
			if got := readFrames(body, true, int(size)+1); !reflect.DeepEqual(got, want) {
				t.Fatalf("in pieces %+v\nwhole     %+v", got, want)
			}
			if u := want.Usage; u.Input < 0 || u.Output < 0 || u.CacheRead > u.Input || want.Delivered < 0 {
				t.Fatalf("got %+v", want)
			}
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	for name, messages := range frameEvents(1000) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(messages[0])))
			b.ReportAllocs()
			r := NewResponse()
			r.Start(http.StatusOK, frameHeader)
			for i := 0; b.Loop(); i++ {
				r.Write(messages[i%1000])
			}
			r.Release()
		})
	}
}
