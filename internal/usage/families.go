package usage

// family is a group of APIs that say in the same words what a call used.
type family struct {
	name string
	// positions are the only places of a document that extract sees, in the order
	// of the family's own constants.
	positions []position
	// extract reads one document into t and reports whether it was one of the
	// family's. The view is valid until it returns.
	extract func(v view, t *tally) bool
}

// families are asked in this order until one knows the document. The last one takes
// what is left.
var families = []family{
	metricsFamily,
	chatFamily,
	anthropicFamily,
	batchFamily,
	cohereFamily, // before responses: its older chat ends with a response too
	responsesFamily,
	geminiFamily,
	interactionsFamily,
	ollamaFamily,
	mistralFamily,
	bedrockFamily,
	imagesFamily,
	ocrFamily,
	sglangFamily, // before audio, which has a text at the top too
	tgiFamily,
	llamaFamily,
	lmStudioFamily,
	audioFamily,
	openaiFamily,
}

// responsePositions is the tree of all families, and familySlots are their slots in it.
var responsePositions, familySlots = func() (*tree, [][]int32) {
	t := newTree()
	var slots [][]int32
	for _, f := range families {
		slots = append(slots, t.add(f.positions))
	}
	return t, slots
}()

// extract reads a document into t.
func extract(d *document, t *tally) {
	before := t.streamed
	t.read++
	t.piece = false
	for i := range families {
		if families[i].extract(view{d, familySlots[i]}, t) {
			break
		}
	}
	if t.streamed > before {
		t.deltas++
	}
}
