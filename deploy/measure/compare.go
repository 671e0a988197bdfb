package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// turns are what one variant does when it is its turn, on a database of its own.
type turns struct {
	name, than string // than is the name of the variant it is compared with; that itself has none
	database   string
	tables     []string // the comparison is of statements on these; purge may stand among them; none means everything
	turn       func(context.Context) error
	spent      []spent
}

const (
	// warmUp is how many rounds do not count.
	warmUp = 3
	// parts are the portions of the rounds whose results are put beside the whole's, to show how sure it is.
	parts = 4
)

// compare gives the variants their turns, in another order each round, and prints what a unit of their work costs the server. Turns
// must be short, so that what else the machine does bears on all variants alike.
//
// The cost of a statement is the quarter of its turns' costs from below, because whoever shares the machine can only make a turn dearer; the cost
// of a unit is the sum of its statements'. An interrupt prints what was found so far.
func (s *server) compare(ctx context.Context, list []turns, rounds int, units float64) error {
	for round := range rounds + warmUp {
		for _, i := range rand.Perm(len(list)) {
			u, err := s.measure(ctx, list[i])
			if err != nil && (ctx.Err() == nil || round < 2*warmUp) {
				return fmt.Errorf("%s: %w", list[i].name, err)
			}
			if err == nil && round >= warmUp {
				list[i].spent = append(list[i].spent, u)
			}
		}
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(os.Stderr, "\rround %d of %d", round+1, rounds+warmUp)
	}
	fmt.Fprintf(os.Stderr, "\r%20s\r", "")
	fmt.Println("| variant | CPU µs each | compared with | in statements on, µs | difference, µs | % of all (in each quarter of the rounds) | without a difference, % | redo KiB each | redo, % |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, t := range list {
		all, redone := t.cost(nil, units), median(each(t.spent, redo))/units/1024
		k := slices.IndexFunc(list, func(b turns) bool { return b.name == t.than })
		if k < 0 {
			fmt.Printf("| %s | %.1f | | | | | | %.2f | |\n", t.name, all, redone)
			continue
		}
		base := list[k]
		difference, whole := t.cost(t.tables, units)-base.cost(t.tables, units), base.cost(nil, units)
		var quarters []float64
		for p := range parts {
			part, of := t.part(p), base.part(p)
			quarters = append(quarters, 100*(part.cost(t.tables, units)-of.cost(t.tables, units))/of.cost(nil, units))
		}
		slices.Sort(quarters)
		control := ""
		if k := slices.IndexFunc(list, func(c turns) bool { return c.name == again(t.than).name }); k >= 0 {
			control = fmt.Sprintf("%+.1f", 100*(list[k].cost(t.tables, units)-base.cost(t.tables, units))/whole)
		}
		fmt.Printf("| %s | %.1f | %s | %s: %.1f | %+.1f | %+.1f (%+.1f … %+.1f) | %s | %.2f | %+.1f |\n", t.name, all, t.than, cmp.Or(strings.Join(t.tables, ", "), "all"), base.cost(t.tables, units),
			difference, 100*difference/whole, quarters[0], quarters[parts-1], control, redone, 100*(redone/(median(each(base.spent, redo))/units/1024)-1))
	}
	fmt.Printf("\nSessions and purge of \"%s\" by the clocks of their threads: %.1f µs each\n", list[0].name, 1e6*quantile(each(list[0].spent, work), 0.25)/units)
	fmt.Printf("\nStatements of \"%s\", CPU µs each:\n\n| statement | µs |\n|---|---|\n", list[0].name)
	for _, name := range list[0].statements() {
		if µs := list[0].statement(name, units); µs >= 1 {
			fmt.Printf("| %s | %.1f |\n", name, µs)
		}
	}
	return nil
}

// cost is that of a unit in microseconds, in statements on some tables or in all.
func (t turns) cost(tables []string, units float64) (sum float64) {
	for _, name := range t.statements() {
		table := name[strings.IndexByte(name, ' ')+1:]
		if len(tables) == 0 || slices.Contains(tables, table) {
			sum += t.statement(name, units)
		}
	}
	return sum
}

func (t turns) statement(name string, units float64) float64 {
	return quantile(each(t.spent, func(u spent) float64 { return float64(u.statements[name]) }), 0.25) / units / float64(time.Microsecond)
}

// statements are the names of all that were sent, the dearest first.
func (t turns) statements() []string {
	sums := map[string]time.Duration{}
	for _, u := range t.spent {
		for name, cpu := range u.statements {
			sums[name] += cpu
		}
	}
	return slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return int(sums[b] - sums[a]) })
}

// part is every fourth turn.
func (t turns) part(p int) turns {
	var some []spent
	for i := p; i < len(t.spent); i += parts {
		some = append(some, t.spent[i])
	}
	t.spent = some
	return t
}

func work(u spent) float64 { return u.work.Seconds() }
func redo(u spent) float64 { return u.redo }

// measure is what one turn cost, with the purge that it left behind.
func (s *server) measure(ctx context.Context, t turns) (spent, error) {
	if err := s.settle(ctx); err != nil {
		return spent{}, err
	}
	if err := s.exec(ctx, "TRUNCATE TABLE performance_schema.events_statements_summary_by_digest"); err != nil {
		return spent{}, err
	}
	before, err := s.reading(ctx)
	if err != nil {
		return spent{}, err
	}
	if err := t.turn(ctx); err != nil {
		return spent{}, err
	}
	if err := s.settle(ctx); err != nil {
		return spent{}, err
	}
	after, err := s.reading(ctx)
	if err != nil {
		return spent{}, err
	}
	u := after.since(before)
	if u.statements, err = s.statements(ctx, t.database); err != nil {
		return spent{}, err
	}
	u.statements[purge] = u.purge
	return u, nil
}

func each(list []spent, value func(spent) float64) []float64 {
	values := make([]float64, len(list))
	for i, u := range list {
		values[i] = value(u)
	}
	return values
}

func median(values []float64) float64 { return quantile(values, 0.5) }

func quantile(values []float64, q float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	at := q * float64(len(sorted)-1)
	low := int(at)
	return sorted[low] + (at-float64(low))*(sorted[min(low+1, len(sorted)-1)]-sorted[low])
}
