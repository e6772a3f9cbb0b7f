//go:build ignore

// Generate writes orders.csv and payments.csv: a shop's orders, and the deliveries of its payment
// provider. The same on every run.
//
//	go run generate.go
package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	orders  = 3_000
	firstID = 100_001
	openMS  = 8_000 // the shop takes all of them in this time
)

var given = strings.Fields(`Ada Alan Amina Anders Barbara Bruno Chiara Dmitri Edsger Elif Emeka Fatima Grace Hana Hedy Ines Ivan Jonas
	Katherine Kofi Leila Lena Linus Mateo Margaret Mei Miguel Nadia Niklaus Noor Olga Omar Pilar Priya Radia Ravi Sofia Tomas Wangari Yuki`)

var family = strings.Fields(`Abe Almeida Andersen Bauer Botha Carvalho Chen Costa Diallo Eriksen Fischer Garcia Haddad Hopper Ivanova Jansen
	Kaya Khan Kowalski Larsen Lovelace Martin Mbeki Moreau Nakamura Novak Okafor Olsen Patel Perlman Rossi Sato Schmidt Silva Singh
	Tanaka Turing Vega Weber Zhang`)

type item struct {
	name  string
	cents int
}

var items = []item{
	{"ballpoint-pen", 149}, {"notebook-a5", 495}, {"notebook-a4", 795}, {"desk-lamp", 3990}, {"desk-organizer", 1850},
	{"espresso-cups", 2400}, {"teapot", 3490}, {"coffee-grinder", 8900}, {"water-bottle", 1995}, {"lunch-box", 2250},
	{"wool-blanket", 7900}, {"linen-towel", 1690}, {"soap-bar", 690}, {"candle", 1290}, {"picture-frame", 1590},
	{"wall-clock", 4490}, {"umbrella", 2990}, {"canvas-bag", 1490}, {"bicycle-bell", 1190}, {"bicycle-light", 2790},
	{"tape-deck", 12900}, {"headphones", 9900}, {"usb-cable", 890}, {"travel-adapter", 2190}, {"postcards", 590},
}

type delivery struct {
	event string
	order int
	cents int
	at    int
}

func main() {
	random := rand.New(rand.NewPCG(2, 7))
	placed := [][]string{{"order", "placed_ms", "customer", "email", "item", "quantity", "cents"}}
	var deliveries []delivery
	for i := range orders {
		id, at := firstID+i, i*openMS/orders
		first, last := given[random.IntN(len(given))], family[random.IntN(len(family))]
		bought := items[random.IntN(len(items))]
		quantity := 1 + int(random.ExpFloat64())
		cents := bought.cents * quantity
		placed = append(placed, []string{
			strconv.Itoa(id), strconv.Itoa(at), first + " " + last,
			strings.ToLower(first+"."+last) + strconv.Itoa(random.IntN(90)+10) + "@example.com",
			bought.name, strconv.Itoa(quantity), strconv.Itoa(cents),
		})
		deliveries = append(deliveries, payments(random, id, at, cents)...)
	}
	slices.SortStableFunc(deliveries, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	sent := [][]string{{"event", "order", "cents", "sent_ms"}}
	for _, d := range deliveries {
		sent = append(sent, []string{d.event, strconv.Itoa(d.order), strconv.Itoa(d.cents), strconv.Itoa(d.at)})
	}
	write("orders.csv", placed)
	write("payments.csv", sent)
}

// payments of one order: usually one some time later, but also none, one before the order, one of a
// wrong amount, or one twice.
func payments(random *rand.Rand, order, placed, cents int) []delivery {
	kind := random.IntN(100)
	if kind < 4 {
		return nil
	}
	d := delivery{fmt.Sprintf("evt-%08x", random.Uint32()), order, cents, placed + 50 + random.IntN(3_000)}
	switch {
	case kind < 10:
		d.at = max(0, placed-50-random.IntN(1_500))
	case kind < 14:
		d.at = placed + random.IntN(20)
	case kind < 15:
		d.cents -= 1 + random.IntN(cents-1)
	}
	all := []delivery{d}
	if random.IntN(12) == 0 {
		d.at += 20 + random.IntN(2_500)
		all = append(all, d)
	}
	return all
}

func write(name string, records [][]string) {
	file, err := os.Create(name)
	if err != nil {
		log.Fatal(err)
	}
	w := csv.NewWriter(file)
	if err := w.WriteAll(records); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}
