package prices

import "strings"

// sized tells whether a call may be priced by the size of its images: no tokens say what
// they cost.
func (c *Call) sized() bool {
	return c.Usage.Images > 0 && c.Usage.Output <= 0 && (c.Hints.ImageSize != "" || c.Hints.ImageQuality != "")
}

// size puts the row of images of the size and quality that were asked for in the place
// of the model's, if the table has one.
func (b *Book) size(m *Match, provider string, c *Call) {
	if !c.sized() || m.Row == nil || m.Own {
		return
	}
	dims := strings.Replace(c.Hints.ImageSize, "x", "-x-", 1)
	if dims == "" || dims == "auto" {
		dims = "1024-x-1024"
	}
	quality := c.Hints.ImageQuality
	if quality == "" || quality == "auto" {
		quality = "standard"
	}
	id, _ := identOf(m.Row)
	for _, name := range [...]string{quality + "/" + dims + "/" + id.name, dims + "/" + id.name} {
		if r := b.exact(provider, strings.ToLower(name), c.At); r != nil && r.usable() {
			m.Row, m.Key = r, r.Key
			return
		}
	}
}
