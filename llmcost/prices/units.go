package prices

// Unit is what a price is for. The token units are disjoint: a token is billed as
// exactly one of them.
type Unit uint8

// The units. Rates of tokens are subject to tiers, services and multipliers; the rest
// are fees, which no multiplier touches.
const (
	Input        Unit = iota // tokens of text that no cache had
	CacheRead                // tokens
	CacheWrite5m             // tokens, kept for minutes or an unstated time
	CacheWrite1h             // tokens, kept for an hour and longer
	Output                   // tokens of text
	Reasoning                // tokens
	AudioIn                  // tokens
	AudioCached              // tokens read from a cache
	AudioWrite               // tokens written to a cache; no API reports them apart
	AudioOut                 // tokens
	ImageIn                  // tokens
	ImageCached              // tokens read from a cache
	ImageOut                 // tokens
	VideoIn                  // tokens
	VideoOut                 // tokens
	Citation                 // tokens

	ImageMade      // image that was generated, whatever its size
	ImageSent      // image in a prompt; of models that only make images, per image made
	PixelIn        // pixel of an image made, as some tables have it; see [Row]
	PixelOut       // pixel of an image made
	SecondIn       // second of audio listened to, or of run time
	SecondOut      // second of audio or video made
	AudioSecondIn  // second of audio in a prompt
	VideoSecondIn  // second of video in a prompt
	VideoSecondOut // second of video made
	CharacterIn    // Unicode code point of text to be spoken
	CharacterOut   // Unicode code point of output
	Page           // page read by OCR
	AnnotatedPage  // page read with annotations, in place of Page
	Query          // search unit of a ranking, or search
	Request        // call
	SearchLow      // search of the web that reads little
	SearchMedium   // search of the web
	SearchHigh     // search of the web that reads much
	FileSearch     // search of stored files
	CodeSession    // container that runs code

	numUnits = iota
)

var unitNames = [numUnits]string{
	"input", "cache_read", "cache_write", "cache_write_1h", "output", "reasoning",
	"audio_input", "audio_cache_read", "audio_cache_write", "audio_output",
	"image_input", "image_cache_read", "image_output", "video_input", "video_output", "citation",
	"image", "image_sent", "pixel_input", "pixel", "second", "second_output",
	"audio_second", "video_second", "video_second_output", "character", "character_output",
	"page", "annotated_page", "query", "request", "web_search_low", "web_search", "web_search_high",
	"file_search", "code_session",
}

// String is the unit's name, as operators write it.
func (u Unit) String() string {
	if int(u) >= len(unitNames) {
		return "unknown"
	}
	return unitNames[u]
}

// Token reports whether the unit is a kind of token.
func (u Unit) Token() bool { return u <= Citation }

// generated reports whether the unit is a kind of output that is no text.
func (u Unit) generated() bool {
	return u == Reasoning || u == AudioOut || u == ImageOut || u == VideoOut
}

// Service is how a call is served, which may have prices of its own.
type Service uint8

// The services.
const (
	Standard Service = iota
	Flex             // slower and cheaper
	Priority         // faster and dearer
	Batch            // within a day

	numServices = iota
)

var serviceNames = [numServices]string{"standard", "flex", "priority", "batch"}

// String is the service's name.
func (s Service) String() string {
	if int(s) >= len(serviceNames) {
		return "unknown"
	}
	return serviceNames[s]
}
