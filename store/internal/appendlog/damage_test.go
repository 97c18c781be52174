package appendlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// sample has an empty record, and one that looks like a frame.
var sample = []string{"first", "", string(appendFrame(nil, []byte("invented"))), strings.Repeat("long ", 20), "last"}

// upTo returns the sample's records that end at or before an offset of the file.
func upTo(offset int) []string {
	end := headerSize
	for i, r := range sample {
		if end += frameSize + len(r); end > offset {
			return sample[:i]
		}
	}
	return sample
}

func TestLogsCutAtAnyByte(t *testing.T) {
	data, dir := write(t, sample...), t.TempDir()
	for n := range data {
		got, rec := reopened(t, dir, data[:n])
		want := upTo(n)
		if !slices.Equal(got, want) {
			t.Fatalf("cut to %d bytes: got %q, want %q", n, got, want)
		}
		good := headerSize
		for _, r := range want {
			good += frameSize + len(r)
		}
		if n < headerSize {
			good = 0
		}
		if rec.Dropped != int64(n-good) {
			t.Fatalf("cut to %d bytes: %d are said to be dropped, want %d", n, rec.Dropped, n-good)
		}
	}
}

func TestLogsWithAnyByteChanged(t *testing.T) {
	data, dir := write(t, sample...), t.TempDir()
	for i := range data {
		for _, mask := range []byte{0x01, 0xff} {
			bad := bytes.Clone(data)
			bad[i] ^= mask
			got, rec := reopened(t, dir, bad)
			if want := upTo(i); !slices.Equal(got, want) {
				t.Fatalf("byte %d: got %q, want %q", i, got, want)
			}
			if rec.Dropped == 0 {
				t.Fatalf("byte %d: nothing is said to be dropped", i)
			}
			if (rec.SetAside != "") != (i < headerSize) {
				t.Fatalf("byte %d: set aside as %q", i, rec.SetAside)
			}
			if rec.SetAside == "" {
				continue
			}
			if aside, err := os.ReadFile(rec.SetAside); err != nil || !bytes.Equal(aside, bad) {
				t.Fatalf("byte %d: what is set aside is changed (%v)", i, err)
			}
		}
	}
}

func TestTailsOfZerosAreDamage(t *testing.T) {
	data, dir := write(t, sample...), t.TempDir()
	for _, n := range []int{1, frameSize, 4096} {
		got, rec := reopened(t, dir, append(bytes.Clone(data), make([]byte, n)...))
		if !slices.Equal(got, sample) || rec.Dropped != int64(n) {
			t.Errorf("%d zeros: got %q, dropped %d", n, got, rec.Dropped)
		}
	}
}

func TestLengthsBeyondTheFileAreDamage(t *testing.T) {
	data, dir := write(t, "one"), t.TempDir()
	for _, n := range []uint32{1, MaxRecord, MaxRecord + 1, 1 << 31, 1<<32 - 1} {
		frame := binary.LittleEndian.AppendUint32(nil, n)
		frame = binary.LittleEndian.AppendUint32(frame, crc32.Checksum(frame, castagnoli))
		if got, _ := reopened(t, dir, append(bytes.Clone(data), frame...)); !slices.Equal(got, []string{"one"}) {
			t.Errorf("a length of %d: got %q", n, got)
		}
	}
}

func TestOtherVersionsAreLeftAlone(t *testing.T) {
	for _, tc := range []struct {
		name            string
		format, version byte
		newer           bool
	}{
		{"a newer format", format + 1, 1, true},
		{"newer records", format, 2, true},
		{"an older format", format - 1, 1, false},
		{"older records", format, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			h := append([]byte(magic), tc.format, tc.version)
			data := binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
			data = append(data, "whatever follows in that format"...)
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := mustLock(t, dir).Open(name, 1, func([]byte) error { return errors.New("was read") })
			if err == nil || errors.Is(err, ErrNewer) != tc.newer || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v", err)
			}
			if got := contents(t, dir); !bytes.Equal(got, data) {
				t.Errorf("the file was changed to %q", got)
			}
		})
	}
}

func TestOlderVersionsThatAreGoodAsTheyAreBecomeThisOne(t *testing.T) {
	for _, tt := range []struct {
		name    string
		records []string
		damage  string
	}{
		{name: "without records"},
		{name: "with records", records: []string{"a", "b", strings.Repeat("c", 3*chunk)}},
		{name: "with a damaged end", records: []string{"a", "b"}, damage: "cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), append(write(t, tt.records...), tt.damage...), 0o600); err != nil {
				t.Fatal(err)
			}
			var got []string
			visit := func(r []byte) error { got = append(got, string(r)); return nil }
			d := mustLock(t, dir)
			l, rec, err := d.OpenSince(name, 1, 3, visit)
			if err != nil || !slices.Equal(got, tt.records) || rec.Records != len(got) || rec.Dropped != int64(len(tt.damage)) {
				t.Fatalf("got %d records, %+v, %v", len(got), rec, err)
			}
			appendAll(t, l, "next")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			for older := byte(1); older < 3; older++ {
				if _, _, err := d.Open(name, older, visit); !errors.Is(err, ErrNewer) {
					t.Errorf("version %d: got %v", older, err)
				}
			}
			if !bytes.Equal(contents(t, dir), before) {
				t.Error("the file was changed")
			}
			got = nil
			l, _, err = d.OpenSince(name, 2, 3, visit)
			if err != nil || !slices.Equal(got, append(tt.records, "next")) {
				t.Errorf("got %d records, %v", len(got), err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := d.OpenSince(name, 4, 5, visit); err == nil || errors.Is(err, ErrNewer) {
				t.Errorf("older than the oldest: got %v", err)
			}
		})
	}
}

// What cannot be read now may be good: it must not be cut off.
func TestReadsThatFailAreNoDamage(t *testing.T) {
	var frames []byte
	for _, r := range sample {
		frames = appendFrame(frames, []byte(r))
	}
	errDisk := errors.New("input/output error")
	for n := range frames {
		r := io.MultiReader(bytes.NewReader(frames[:n]), iotest.ErrReader(errDisk))
		if _, err := scan(r, int64(len(frames)), func([]byte) error { return nil }); !errors.Is(err, errDisk) {
			t.Fatalf("after %d bytes: got %v", n, err)
		}
	}
}

func TestErrorsOfTheVisitorChangeNothing(t *testing.T) {
	dir := t.TempDir()
	data := append(write(t, sample...), "torn"...)
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
	errVisit := errors.New("not a record of mine")
	_, _, err := mustLock(t, dir).Open(name, 1, func([]byte) error { return errVisit })
	if !errors.Is(err, errVisit) || !bytes.Equal(contents(t, dir), data) {
		t.Errorf("got %v", err)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(nil))
	for _, r := range sample {
		f.Add(appendFrame(nil, []byte(r)))
	}
	f.Add(append(appendFrame(appendFrame(nil, []byte("a")), []byte("b")), "\x05\x00\x00"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		var again []byte
		good, err := scan(bytes.NewReader(data), int64(len(data)), func(r []byte) error {
			again = appendFrame(again, r)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// Whatever is read is there, from the beginning and without a gap.
		if good != int64(len(again)) || !bytes.Equal(again, data[:good]) {
			t.Fatalf("%d bytes are good, the records make %q", good, again)
		}
	})
}

func ExampleDir_Open() {
	path, _ := os.MkdirTemp("", "appendlog")
	defer os.RemoveAll(path)
	for range 2 {
		d, _ := Lock(path)
		l, _, _ := d.Open("journal", 1, func(record []byte) error {
			fmt.Printf("%s\n", record)
			return nil
		})
		_ = l.Append([]byte("charged 5"))
		_ = l.Sync()
		_ = l.Close()
		_ = d.Close()
	}
	// Output: charged 5
}
