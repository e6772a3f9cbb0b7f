package dashboard

import (
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// compressors are reused: one has some 800 KiB of tables.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compressed serves texts compressed to clients that accept that.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if r.Method == http.MethodHead || !acceptsGzip(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		c := &compressor{ResponseWriter: w}
		defer c.close()
		next.ServeHTTP(c, r)
	})
}

func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, some := strings.Cut(part, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		_, number, _ := strings.Cut(weight, "=")
		q, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		return !some || err == nil && q > 0
	}
	return false
}

// compressor is a response whose body is compressed if it is a text. It decides at the first write,
// when the type is known.
type compressor struct {
	http.ResponseWriter

	decided bool
	out     *gzip.Writer // nil: as it is
}

// WriteHeader sends the header, which says whether the body is compressed.
func (c *compressor) WriteHeader(status int) {
	if !c.decided {
		c.decided = true
		h := c.Header()
		kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
		if strings.HasPrefix(kind, "text/") || kind == "application/json" || kind == "image/svg+xml" {
			h.Set("Content-Encoding", "gzip")
			h.Del("Content-Length")
			c.out, _ = compressors.Get().(*gzip.Writer)
			c.out.Reset(c.ResponseWriter)
		}
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *compressor) Write(text []byte) (int, error) {
	if !c.decided {
		c.WriteHeader(http.StatusOK)
	}
	if c.out == nil {
		return c.ResponseWriter.Write(text)
	}
	return c.out.Write(text)
}

// Unwrap lets a [http.ResponseController] set deadlines.
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// close ends the body.
func (c *compressor) close() {
	if c.out != nil {
		_ = c.out.Close() // who asked may have gone
		compressors.Put(c.out)
	}
}
