package meter

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// A payload with another model reads as the body does with that model in it, however it is
// read, and asks for the last of several.
func TestPayloadsWithAnotherModel(t *testing.T) {
	type request struct {
		Before string `json:"before"`
		Model  string `json:"model"`
		After  string `json:"after"`
	}
	encode := func(q request) []byte {
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	rapid.Check(t, func(t *rapid.T) {
		q := request{rapid.String().Draw(t, "before"), rapid.StringN(1, 20, -1).Draw(t, "model"), rapid.String().Draw(t, "after")}
		body := encode(q)
		kept := bytes.Clone(body)
		p := payload{body: body}
		for _, name := range rapid.SliceOfN(rapid.StringMatching(`[a-z"é/:-]{1,30}`), 0, 3).Draw(t, "others") {
			var ok bool
			if p, ok = p.asking(name); !ok {
				t.Fatalf("%q cannot ask for %q", body, name)
			}
			q.Model = name
		}
		want := encode(q)
		if p.size() != int64(len(want)) {
			t.Fatalf("%d bytes, want %d", p.size(), len(want))
		}
		for range 2 { // each reader begins anew
			if err := iotest.TestReader(p.reader(), want); err != nil {
				t.Fatal(err)
			}
			var all bytes.Buffer
			if n, err := io.Copy(&all, p.reader()); err != nil || n != p.size() || !bytes.Equal(all.Bytes(), want) {
				t.Fatalf("got %q, %v; want %q", all.Bytes(), err, want)
			}
		}
		if !bytes.Equal(body, kept) {
			t.Fatal("the body has changed")
		}
	})
}
