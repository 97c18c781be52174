package appendlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A file is a header and frames:
//
//	header  magic (6 bytes), format of the frames (1), version of the records (1), checksum of the 8 bytes before (4)
//	frame   length of the record (4), checksum of the length and the record (4), the record
//
// Numbers are little endian, checksums CRC-32C. The header keeps its form in every
// format, so that each version can tell a newer file from a damaged one.
const (
	magic      = "LLMLOG"
	format     = 1
	headerSize = len(magic) + 2 + 4
	frameSize  = 4 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func header(version byte) []byte {
	h := append([]byte(magic), format, version)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

// readHeader returns what a header says; ok is false if it is none.
func readHeader(h []byte) (format, version byte, ok bool) {
	n := len(magic) + 2
	if len(h) < headerSize || string(h[:len(magic)]) != magic ||
		binary.LittleEndian.Uint32(h[n:]) != crc32.Checksum(h[:n], castagnoli) {
		return 0, 0, false
	}
	return h[n-2], h[n-1], true
}

// appendFrame appends a record in its frame. The record is no longer than MaxRecord.
func appendFrame(b, record []byte) []byte {
	var frame [frameSize]byte
	binary.LittleEndian.PutUint32(frame[:], uint32(len(record)))
	sum := crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, record)
	binary.LittleEndian.PutUint32(frame[4:], sum)
	return append(append(b, frame[:]...), record...)
}

// scan gives the records of size bytes of frames to visit, up to the end or the
// first that is damaged: behind that, nothing says where a record begins. It
// returns how many bytes were good. Errors are those of r and of visit; damage is
// none.
func scan(r io.Reader, size int64, visit func(record []byte) error) (good int64, err error) {
	var (
		in     = bufio.NewReaderSize(r, 256<<10)
		frame  [frameSize]byte
		record []byte
	)
	for size-good >= frameSize {
		if _, err := io.ReadFull(in, frame[:]); err != nil {
			return good, shorter(err)
		}
		n := int64(binary.LittleEndian.Uint32(frame[:]))
		if n > MaxRecord || n > size-good-frameSize {
			return good, nil
		}
		if int64(cap(record)) < n {
			record = make([]byte, n, n+n/2)
		}
		record = record[:n]
		if _, err := io.ReadFull(in, record); err != nil {
			return good, shorter(err)
		}
		sum := crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, record)
		if sum != binary.LittleEndian.Uint32(frame[4:]) {
			return good, nil
		}
		if err := visit(record); err != nil {
			return good, err
		}
		good += frameSize + n
	}
	return good, nil
}

// shorter is nil for the end of a file that is shorter than it was, which is damage
// like other. A read that fails is not: what it was to read may be good.
func shorter(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
