package strict

import (
	"fmt"
	"strings"
	"testing"
)

var bodies = map[string]string{
	"task": `{"queue":"mail.outgoing","type":"mail.send","priority":5,"run_at":"2026-01-02T03:04:05.000000Z",` +
		`"payload":{"to":"person@example.org","subject":"Your order 4711 has been shipped","template":"shipped-v3",` +
		`"order":{"id":3889108265204450030,"total":"129.90","weight_kg":0.1000,"lines":[{"sku":"A-1","n":2},{"sku":"B-7","n":1}]}},` +
		`"tags":["mail","order"],"max_attempts":5}`,
	"text":    `{"payload":"` + strings.Repeat("Plain text without anything special in it, as logs and letters are. ", 1000) + `"}`,
	"chinese": `{"payload":"` + strings.Repeat("持久化任务队列，恰好接受一次。", 3000) + `"}`,
	"escapes": `{"payload":"` + strings.Repeat(`a line\nand \"another\"\t\u00e9 `, 3000) + `"}`,
	"numbers": `[` + strings.Repeat(`12,345.678,-9.1e-7,3889108265204450030,`, 2000) + `0]`,
	"objects": `[` + strings.Repeat(`{"zone":"eu","id":12345,"active":true,"name":"node"},`, 1500) + `0]`,
	"wide":    wide(5000),
}

func wide(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"key%d":%d,`, i*7919%n, i)
	}
	return `{` + strings.TrimSuffix(b.String(), ",") + `}`
}

func BenchmarkScan(b *testing.B) {
	for name, text := range bodies {
		body := []byte(text)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Scan(subject, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScanItems(b *testing.B) {
	item := strings.TrimSuffix(bodies["task"], "}") + `,"idempotency_key":"0123456789abcdef"}`
	body := []byte(`{"items":[` + strings.Repeat(item+",", 99) + item + `]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ScanItems(subject, body, batch); err != nil {
			b.Fatal(err)
		}
	}
}
