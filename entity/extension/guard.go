package extension

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"

	"entgo.io/ent/entc/gen"
)

// A moved method of ent's gets another name, and the templates' method, named ours, gets its name
// and calls it. This is decision D99: ent's templates offer no place in these methods.
type moved struct{ builder, method, name, ours string }

// moves returns the methods to move, by the end of the name of their file.
func moves(n *gen.Type) (map[string][]moved, error) {
	is, err := driven(n.Annotations)
	if err != nil || is == nil {
		return nil, err
	}
	all := map[string][]moved{}
	if is.Guarded() {
		all["create"] = append(all["create"], moved{n.CreateName(), "check", "checkFields", "durableCheck"})
	}
	if is.OnCreate || len(is.OnUpdate) > 0 {
		all["create"] = append(all["create"], moved{n.CreateName(), "Save", "saveAlone", "durableSave"}, moved{n.CreateBulkName(), "Save", "saveAlone", "durableSave"})
	}
	if len(is.OnUpdate) > 0 {
		all["update"] = []moved{{n.UpdateName(), "sqlSave", "sqlSaveAlone", "durableSave"}, {n.UpdateOneName(), "sqlSave", "sqlSaveAlone", "durableSave"}}
	}
	return all, nil
}

// guard renames methods in the files of a type's creation and update, which ent has just written.
func guard(n *gen.Type) error {
	all, err := moves(n)
	if err != nil {
		return err
	}
	for of, some := range all {
		file := filepath.Join(n.Target, n.PackageDir()+"_"+of+".go")
		source, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read what ent generated: %w", err)
		}
		if source, err = renamed(source, some); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, source, 0o644); err != nil { //nolint:gosec // as ent writes it
			return err
		}
	}
	return nil
}

// renamed returns a source with methods renamed.
func renamed(source []byte, all []moved) ([]byte, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse what ent generated: %w", err)
	}
	type edit struct {
		from, to int
		text     string
	}
	var edits []edit
	at := func(pos token.Pos) int { return files.Position(pos).Offset }
	for _, m := range all {
		theirs, ours := methodOf(parsed, m.builder, m.method), methodOf(parsed, m.builder, m.ours)
		if theirs == nil || ours == nil {
			return nil, fmt.Errorf("%s has no method %s: this version of ent is not known to the extension of gendurable", m.builder, m.method)
		}
		text := fmt.Sprintf("// %s is %s as ent generates it.", m.name, m.method)
		if theirs.Doc == nil {
			edits = append(edits, edit{at(theirs.Pos()), at(theirs.Pos()), text + "\n"})
		} else {
			edits = append(edits, edit{at(theirs.Doc.Pos()), at(theirs.Doc.End()), text})
		}
		edits = append(edits, edit{at(theirs.Name.Pos()), at(theirs.Name.End()), m.name}, edit{at(ours.Name.Pos()), at(ours.Name.End()), m.method})
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits { // from the end, so that offsets before it hold
		source = slices.Replace(source, e.from, e.to, []byte(e.text)...)
	}
	return source, nil
}

// methodOf returns a method of a pointer.
func methodOf(file *ast.File, builder, method string) *ast.FuncDecl {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Name.Name != method {
			continue
		}
		star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		if of, ok := star.X.(*ast.Ident); ok && of.Name == builder {
			return f
		}
	}
	return nil
}
