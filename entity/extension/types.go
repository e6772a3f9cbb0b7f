package extension

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"entgo.io/ent/entc/gen"
	"golang.org/x/tools/go/packages"

	"github.com/gendurable/gendurable/entity"
)

// An alias is the name of a package in the files of driven types, which import what the machine's
// types are made of.
type alias struct{ Name, Path string }

const fsmPath = "github.com/gendurable/gendurable/fsm"

// aliases returns the packages of a machine's types by names that no other import has: durable and
// the end of the path, and a number where that is taken.
func aliases(of gen.Annotations) ([]alias, error) {
	is, err := driven(of)
	if err != nil || is == nil || is.State == nil {
		return nil, err
	}
	paths := slices.Concat(is.State.Imports, is.Result.Imports)
	for _, f := range is.Fields {
		paths = append(paths, f.Imports...)
	}
	slices.Sort(paths)
	names := slices.Clone(imported)
	var all []alias
	for _, p := range slices.Compact(paths) {
		if p == fsmPath {
			continue // it is imported anyway
		}
		base := "durable" + strings.Map(func(r rune) rune {
			if r < unicode.MaxASCII && (unicode.IsLower(r) || unicode.IsDigit(r)) {
				return r
			}
			return -1
		}, strings.ToLower(path.Base(p)))
		name := base
		for i := 2; slices.Contains(names, name); i++ {
			name = base + strconv.Itoa(i)
		}
		names = append(names, name)
		all = append(all, alias{name, p})
	}
	return all, nil
}

// A member is a field of the generated struct of a state's fields: one with predicates, or a struct
// of such fields.
type member struct {
	Name   string
	Field  *entity.StateField
	Inside []member
}

// members returns what the generated struct has, in the order of the state's fields.
func members(of *entity.Annotation) (all []member) {
	for i := range of.Fields {
		f := &of.Fields[i]
		outer, inner, nested := strings.Cut(f.Go, ".")
		if !nested {
			all = append(all, member{Name: outer, Field: f})
			continue
		}
		at := slices.IndexFunc(all, func(m member) bool { return m.Name == outer })
		if at < 0 {
			at, all = len(all), append(all, member{Name: outer})
		}
		all[at].Inside = append(all[at].Inside, member{Name: inner, Field: f})
	}
	return all
}

// constructor returns the function of package entity/state that makes a field.
func constructor(f *entity.StateField) string {
	switch {
	case f.Of != "Ordered":
		return f.Of
	case f.Name == `"time".Time`:
		return "Time"
	default:
		return "Number"
	}
}

// goType returns a type of the machine as the files of a driven type name it.
func goType(n *gen.Type, of entity.Type) (string, error) {
	all, err := aliases(n.Annotations)
	if err != nil {
		return "", err
	}
	name := strings.ReplaceAll(of.Name, strconv.Quote(fsmPath)+".", "durablefsm.")
	for _, a := range all {
		name = strings.ReplaceAll(name, strconv.Quote(a.Path)+".", a.Name+".")
	}
	return name, nil
}

const instead = ", or use entity.DrivenByName, which needs no types"

// nameable checks that a client in package pkg can name the types of the machine.
func nameable(is *entity.Annotation, pkg string) error {
	if is.State == nil {
		return nil
	}
	type part struct {
		what string
		*entity.Type
	}
	parts := []part{{"state", is.State}, {"result", is.Result}}
	for i := range is.Fields {
		parts = append(parts, part{"state's field " + is.Fields[i].Go, &is.Fields[i].Type})
	}
	for _, of := range parts {
		if of.Fault != "" {
			return fmt.Errorf("entity.DrivenBy: the %s of machine %q: %s%s", of.what, is.Machine, of.Fault, instead)
		}
		for _, p := range of.Imports {
			if !importable(p, pkg) {
				return fmt.Errorf("entity.DrivenBy: the %s of machine %q: %s is internal, and the generated client %s may not import it: move the type%s",
					of.what, is.Machine, p, pkg, instead)
			}
		}
	}
	return nil
}

// importable reports whether Go's rule of internal packages lets one package import another.
func importable(path, by string) bool {
	whole := "/" + path + "/"
	at := strings.LastIndex(whole, "/internal/")
	if at < 0 {
		return true
	}
	parent := strings.TrimPrefix(whole[:at], "/")
	return parent != "" && (by == parent || strings.HasPrefix(by, parent+"/"))
}

// acyclic refuses machines whose types are declared where the generated client is imported: it
// would import itself.
func acyclic(g *gen.Graph) error {
	of := map[string][]string{} // path → schemas
	var paths []string
	for _, n := range g.Nodes {
		all, err := aliases(n.Annotations)
		if err != nil {
			return err
		}
		for _, a := range all {
			if of[a.Path] == nil {
				paths = append(paths, a.Path)
			}
			of[a.Path] = append(of[a.Path], n.Name)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps, BuildFlags: g.BuildFlags}, paths...)
	if err != nil {
		return fmt.Errorf("load the packages of machines: %w", err)
	}
	client, faults := clientOf(g), []error{}
	for _, root := range loaded {
		packages.Visit([]*packages.Package{root}, func(p *packages.Package) bool {
			if slices.Contains(client, p.PkgPath) {
				faults = append(faults, fmt.Errorf("schema %s: entity.DrivenBy: package %s, of the machine's types, imports the generated client by %s: declare machine, state and result in a package that does not%s",
					of[root.PkgPath][0], root.PkgPath, p.PkgPath, instead))
				return false
			}
			return len(faults) == 0
		}, nil)
	}
	return errors.Join(faults...)
}

// clientOf returns the packages of the generated client.
func clientOf(g *gen.Graph) []string {
	client := []string{g.Package}
	for _, dir := range []string{"predicate", "hook", "migrate", "runtime", "enttest", "intercept", "privacy", "internal"} {
		client = append(client, path.Join(g.Package, dir))
	}
	for _, n := range g.Nodes {
		client = append(client, path.Join(g.Package, n.PackageDir()))
	}
	return client
}

// distinct refuses types whose package has the name of one that holds a machine's types.
func distinct(g *gen.Graph) error {
	for _, n := range g.Nodes {
		all, err := aliases(n.Annotations)
		if err != nil {
			return err
		}
		for _, a := range all {
			if at := slices.IndexFunc(g.Nodes, func(other *gen.Type) bool { return other.Package() == a.Name }); at >= 0 {
				return fmt.Errorf("schema %s: what gendurable's extension generates imports %s as %s, the name of this type's package: give the type another name",
					g.Nodes[at].Name, a.Path, a.Name)
			}
		}
	}
	return nil
}
