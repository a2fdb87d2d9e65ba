// Prints sample rows as encoding/json writes them: go run make_go.go orders|sensors|events
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"time"
)

var r = rand.New(rand.NewSource(5))

func pick[T any](a ...T) T { return a[r.Intn(len(a))] }
func uuid() string {
	var b [16]byte
	r.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

type Line struct {
	SKU   string  `json:"sku"`
	Qty   int     `json:"qty"`
	Price float64 `json:"price"`
}
type Order struct {
	OrderID  int       `json:"order_id"`
	Customer string    `json:"customer"`
	PlacedAt time.Time `json:"placed_at"`
	Total    float64   `json:"total"`
	Currency string    `json:"currency"`
	Paid     bool      `json:"paid"`
	Lines    []Line    `json:"lines"`
	Coupon   *string   `json:"coupon"`
	Note     string    `json:"note,omitempty"`
}
type Sensor struct {
	Device      string            `json:"device"`
	TS          int64             `json:"ts"`
	Temperature float64           `json:"temperature"`
	Pressure    float64           `json:"pressure"`
	OK          *bool             `json:"ok"`
	Readings    []float64         `json:"readings"`
	Tags        map[string]string `json:"tags"`
}
type Screen struct {
	W   int     `json:"w"`
	H   int     `json:"h"`
	Dpr float64 `json:"dpr"`
}
type Event struct {
	Event    string  `json:"event"`
	UserID   int64   `json:"user_id"`
	Session  string  `json:"session"`
	At       string  `json:"at"`
	Day      string  `json:"day"`
	URL      string  `json:"url"`
	Referrer *string `json:"referrer"`
	Screen   Screen  `json:"screen"`
	Score    float64 `json:"score"`
}

func row(kind string, i int) any {
	at := time.Date(2026, 3, 1, 6, 0, i, pick(0, r.Intn(1000)*1000000, r.Intn(1000000)*1000), time.UTC)
	s := "SPRING <10%>"
	ref := "https://example.org/"
	t := true
	switch kind {
	case "orders":
		lines := []Line{}
		for n := r.Intn(4); n > 0; n-- {
			lines = append(lines, Line{fmt.Sprintf("SKU-%04d", r.Intn(9999)), 1 + r.Intn(9), float64(r.Intn(99999)) / 100})
		}
		return Order{i, pick("Müller", "山田太郎", "a\"quote\\slash/", "tab\there", "😀 shop", "plain", "<b>&amp;</b>", "\u0001\u001f\u007f\b\f\r\n\u2028"), at, math.Round(r.Float64()*1e5) / 100, pick("EUR", "USD"), r.Float64() < .7, lines, pick(nil, &s), pick("", "leave at door")}
	case "sensors":
		readings := []float64{}
		for n := r.Intn(5); n > 0; n-- {
			readings = append(readings, math.Round(r.NormFloat64()*1000)/1000)
		}
		tags := map[string]string{}
		for _, k := range []string{"site", "rack", "größe", "z/1", "<x>"} {
			if r.Intn(2) == 0 {
				tags[k] = pick("x", "é", "<b>")
			}
		}
		return Sensor{uuid(), 1772323200000 + int64(i)*250, pick(r.Float64()*100-40, 20, math.Copysign(0, -1), r.Float64()*1e-9), r.Float64() * math.Pow(10, float64(r.Intn(25))), pick(nil, &t), readings, tags}
	default:
		return Event{pick("page_view", "click", "search"), r.Int63(), uuid(), at.Format("2006-01-02 15:04:05.000"), at.AddDate(0, 0, i).Format("2006-01-02"), fmt.Sprintf("https://shop.example/p/%d?q=%s", r.Intn(999), pick("a&b=c", "naïve", "x+y")), pick(nil, &ref), Screen{pick(1280, 1920), pick(720, 1080), pick(1, 1.5, 2)}, pick(1e-5, 1e-7, 0.1, 3, 1e16, 1e21, 123456789.125)}
	}
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	for i := 0; i < 200; i++ {
		if err := encoder.Encode(row(os.Args[1], i)); err != nil {
			panic(err)
		}
	}
}
