package meter

import (
	"net/http"
	"testing"
)

func TestTrustedDurations(t *testing.T) {
	all := []string{"X-Audio-Duration", "x-video-duration"}
	for _, tc := range []struct {
		name    string
		trusted []string
		headers []string
		want    Durations
		err     string
	}{
		{"nobody is trusted", nil, []string{"X-Audio-Duration", "5"}, Durations{}, ""},
		{"absent", all, nil, Durations{}, ""},
		{"whole", all, []string{"X-Audio-Duration", "90"}, Durations{Audio: 90_000, AudioSaid: true}, ""},
		{"a fraction", all, []string{"X-Video-Duration", "1.5"}, Durations{Video: 1500, VideoSaid: true}, ""},
		{"rounded up", all, []string{"X-Audio-Duration", "0.0001"}, Durations{Audio: 1, AudioSaid: true}, ""},
		{"zeros are nothing", all, []string{"X-Audio-Duration", "0.10000000000000000000"}, Durations{Audio: 100, AudioSaid: true}, ""},
		{"zero", all, []string{"X-Audio-Duration", "0"}, Durations{AudioSaid: true}, ""},
		{"both", all, []string{"X-Audio-Duration", "1", "X-Video-Duration", "2"}, Durations{Audio: 1000, Video: 2000, AudioSaid: true, VideoSaid: true}, ""},
		{"the same twice", all, []string{"X-Audio-Duration", "1", "X-Audio-Duration", "1.0"}, Durations{Audio: 1000, AudioSaid: true}, ""},
		{"contradicting", all, []string{"X-Audio-Duration", "1", "X-Audio-Duration", "2"}, Durations{}, "the header X-Audio-Duration contradicts another one"},
		{"negative", all, []string{"X-Audio-Duration", "-1"}, Durations{}, "the header X-Audio-Duration must be seconds, such as 12.5"},
		{"a sign", all, []string{"X-Audio-Duration", "+1"}, Durations{}, "the header X-Audio-Duration must be seconds, such as 12.5"},
		{"no number", all, []string{"X-Video-Duration", "NaN"}, Durations{}, "the header X-Video-Duration must be seconds, such as 12.5"},
		{"no end", all, []string{"X-Video-Duration", "Inf"}, Durations{}, "the header X-Video-Duration must be seconds, such as 12.5"},
		{"an exponent", all, []string{"X-Video-Duration", "1e9"}, Durations{}, "the header X-Video-Duration must be seconds, such as 12.5"},
		{"a list", all, []string{"X-Video-Duration", "1, 2"}, Durations{}, "the header X-Video-Duration must be seconds, such as 12.5"},
		{"empty", all, []string{"X-Video-Duration", ""}, Durations{}, "the header X-Video-Duration must be seconds, such as 12.5"},
		{"the longest", all, []string{"X-Audio-Duration", "2678400"}, Durations{Audio: 2_678_400_000, AudioSaid: true}, ""},
		{"too long", all, []string{"X-Audio-Duration", "2678400.001"}, Durations{}, "the header X-Audio-Duration must be seconds, such as 12.5"},
		{"huge", all, []string{"X-Audio-Duration", "99999999999999999999"}, Durations{}, "the header X-Audio-Duration must be seconds, such as 12.5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New()
			m.SetOptions(Options{TrustDuration: tc.trusted})
			h := make(http.Header)
			for i := 0; i < len(tc.headers); i += 2 {
				h.Add(tc.headers[i], tc.headers[i+1])
			}
			got, err := (&Call{m: m}).TrustedDurations(h)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %+v and %v, want %+v and %q", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestADurationHeaderSaysWhatItIsAbout(t *testing.T) {
	for name, ok := range map[string]bool{
		"X-Audio-Duration": true, "x-video-seconds": true, "X-Duration": false, "X-Audio-Video": false, "X Audio": false, "": false,
	} {
		if err := CheckDurationHeader(name); (err == nil) != ok {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func FuzzParseSeconds(f *testing.F) {
	for _, s := range []string{"", "0", "1.5", "-1", "NaN", "1e9", ".", "1.", ".5", "2678400.0000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := parseSeconds(s); ok && (n < 0 || n > maxDuration.Milliseconds()) {
			t.Errorf("%q is %d ms", s, n)
		}
	})
}
