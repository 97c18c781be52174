package usage

import "bytes"

// imagesFamily is OpenAI's Images API and its followers.
var imagesFamily = family{
	name: "images",
	positions: []position{
		imgType:  {"type", word},
		imgModel: {"model", word},
		imgUsage: {"usage", fragment},
		imgSVG:   {"svg_usage", fragment},
		imgData:  {"data[]", mark},
		imgBytes: {"data[].b64_json", mark},
		imgURL:   {"data[].url", mark},
		imgPlain: {"images[]", mark},
	},
	extract: extractImages,
}

const (
	imgType = iota
	imgModel
	imgUsage
	imgSVG // what drawing with lines used besides, in text
	imgData
	imgBytes
	imgURL
	imgPlain // base64, from Titan, Nova and Stability at Bedrock
)

func extractImages(v view, t *tally) bool {
	if v.kind(imgBytes) == typeString || v.kind(imgURL) == typeString {
		t.served(v, imgModel)
		t.output = true
		u := readImageUsage(v, t)
		u.Images = int64(v.count(imgData))
		t.uncounted = u.Total() == 0
		t.report(u)
		return true
	}
	if v.kind(imgPlain) == typeString {
		t.output, t.uncounted = true, true
		t.report(Usage{Images: int64(v.count(imgPlain))})
		return true
	}
	event := v.word(imgType)
	if !bytes.HasPrefix(event, []byte("image_generation.")) && !bytes.HasPrefix(event, []byte("image_edit.")) {
		return false
	}
	t.unended, t.output = true, true
	if bytes.HasSuffix(event, []byte(".completed")) {
		// One event an image, which counts what that image used.
		t.ended = true
		u := readImageUsage(v, t)
		u.Images = 1
		t.uncounted = t.uncounted || u.Total() == 0
		t.add(u)
	}
	return true
}

// readImageUsage reads the usage of a document with images. What is put out is images,
// even if the details do not say so; models that are billed by the image have no usage.
func readImageUsage(v view, t *tally) (u Usage) {
	var n tokens
	ok := readTokens(v.raw(imgUsage), &n)
	if ok {
		t.terms.takeCost(&n.cost)
		u = n.usage(true)
		if !n.out.image.known {
			u.ImageOut = u.Output
		}
	}
	if svg, ok := readUsage(v.raw(imgSVG), true); ok {
		u.add(svg)
	}
	return u
}
