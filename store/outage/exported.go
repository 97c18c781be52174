package outage

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
)

// exported are the records of what the remote has pending, in its order. In the file
// they are written whole as a generation, each for itself, since all in one could be
// too long; the last record of a generation puts it in the place of those before.
type exported struct {
	gen     uint64
	written map[[sha256.Size]byte]struct{} // of the last generation
}

func sums(records [][]byte) map[[sha256.Size]byte]struct{} {
	m := make(map[[sha256.Size]byte]struct{}, len(records))
	for _, r := range records {
		m[sha256.Sum256(r)] = struct{}{}
	}
	return m
}

// changes writes the records, unless they are those that were written last.
func (e *exported) changes(records [][]byte, write func([]byte) error) error {
	now := sums(records)
	if maps.Equal(now, e.written) {
		return nil
	}
	return e.all(records, write)
}

// doubt has the next changes write its records, whatever they are.
func (e *exported) doubt() { e.written = map[[sha256.Size]byte]struct{}{{}: {}} }

// all writes the records.
func (e *exported) all(records [][]byte, write func([]byte) error) error {
	e.gen++
	var errs []error
	for _, r := range records {
		errs = append(errs, write(append(binary.AppendUvarint([]byte{kindRemote}, e.gen), r...)))
	}
	if err := errors.Join(append(errs, write(binary.AppendUvarint([]byte{kindWhole}, e.gen)))...); err != nil {
		return err
	}
	e.written = sums(records)
	return nil
}

// generations reads what all has written.
type generations struct {
	most    uint64   // the highest number, of one that may have broken off
	records [][]byte // of the last that is whole
	open    map[uint64][][]byte
}

func (g *generations) read(kind byte, data []byte) error {
	gen, n := binary.Uvarint(data)
	if n <= 0 || kind == kindWhole && n != len(data) {
		return errRecord
	}
	g.most = max(g.most, gen)
	if kind == kindRemote {
		if g.open == nil {
			g.open = make(map[uint64][][]byte)
		}
		g.open[gen] = append(g.open[gen], append([]byte(nil), data[n:]...))
		return nil
	}
	g.records, g.open = g.open[gen], nil
	return nil
}
