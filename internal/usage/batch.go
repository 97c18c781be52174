package usage

// batchFamily is the results of OpenAI's and Mistral's batches: lines that hold a whole
// answer each. A line with an error is no error of the download.
var batchFamily = family{
	name: "batch",
	positions: []position{
		batchBody:  {"response.body", mark},
		batchModel: {"response.body.model", word},
		batchUsage: {"response.body.usage", fragment},
		batchTier:  {"response.body.service_tier", word},
	},
	extract: func(v view, t *tally) bool {
		if v.kind(batchBody) != typeObject {
			return false
		}
		t.served(v, batchModel)
		t.output = true
		say(&t.terms.ServiceTier, v.word(batchTier))
		if u, ok := readUsage(v.raw(batchUsage), true); ok {
			t.add(u)
		}
		return true
	},
}

const (
	batchBody = iota
	batchModel
	batchUsage
	batchTier
)

// ocrFamily is Mistral's OCR, which is billed by the page.
var ocrFamily = family{
	name: "ocr",
	positions: []position{
		ocrModel: {"model", word},
		ocrPages: {"usage_info.pages_processed", word},
		ocrNoted: {"usage_info.pages_processed_annotation", word},
		ocrText:  {"pages[].markdown document_annotation", text},
	},
	extract: func(v view, t *tally) bool {
		pages, annotated := v.number(ocrPages), v.number(ocrNoted)
		if !pages.known && !annotated.known {
			return false
		}
		t.served(v, ocrModel)
		t.streamed += v.text(ocrText)
		t.report(Usage{Pages: pages.n, Annotated: annotated.n})
		return true
	},
}

const (
	ocrModel = iota
	ocrPages
	ocrNoted // pages that were annotated
	ocrText
)
