"""Every name of the book: where it is declared and defined, and which one each use of it means, as libclang reads them."""

import json
import multiprocessing
import os
import shlex
import sys
from collections import defaultdict
from dataclasses import dataclass, field

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's packages, for a Python that is not Debian's

import clang.cindex as clang

Kind = clang.CursorKind
SCOPES = {Kind.NAMESPACE, Kind.TRANSLATION_UNIT, Kind.CLASS_DECL, Kind.STRUCT_DECL, Kind.CLASS_TEMPLATE, Kind.ENUM_DECL,
          Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION, Kind.LINKAGE_SPEC}
KINDS = {
    Kind.CLASS_DECL: "class", Kind.STRUCT_DECL: "struct", Kind.CLASS_TEMPLATE: "class", Kind.ENUM_DECL: "enum",
    Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION: "class", Kind.TYPEDEF_DECL: "type", Kind.TYPE_ALIAS_DECL: "type",
    Kind.TYPE_ALIAS_TEMPLATE_DECL: "type", Kind.FUNCTION_DECL: "function", Kind.FUNCTION_TEMPLATE: "function",
    Kind.CXX_METHOD: "function", Kind.CONSTRUCTOR: "constructor", Kind.DESTRUCTOR: "destructor",
    Kind.CONVERSION_FUNCTION: "function", Kind.FIELD_DECL: "member", Kind.VAR_DECL: "variable",
    Kind.ENUM_CONSTANT_DECL: "enumerator", Kind.MACRO_DEFINITION: "macro",
}
HIDDEN = {clang.AccessSpecifier.PRIVATE, clang.AccessSpecifier.PROTECTED}


@dataclass
class Place:
    path: str
    offset: int
    line: int


@dataclass
class Name:
    name: str
    scope: str  # "Tensor", "kernels"; "" in ringgrad itself
    kind: str
    public: bool = False
    declarations: list = field(default_factory=list)  # of Place
    definition: Place = None

    @property
    def target(self):
        return self.definition or self.declarations[0]


def read(job):
    """Reads one translation unit. Its names are {(path, offset): (usr, name, scope, kind, public, is definition, line)}, and the uses,
    {(path, offset): (path, offset) of the declaration that is meant, None where it is local or another library's}."""
    file, arguments, root, files = job
    unit = clang.Index.create().parse(file, arguments, options=clang.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
    if fatal := [str(problem) for problem in unit.diagnostics if problem.severity == clang.Diagnostic.Fatal]:
        raise RuntimeError(f"libclang cannot read {file}: {fatal[0]}")
    paths = {}

    def place(cursor):
        location = cursor.location
        if location.file is None:
            return None
        name = location.file.name
        if name not in paths:
            path = os.path.relpath(os.path.realpath(name), root)
            paths[name] = path if path in files else None
        return paths[name] and (paths[name], location.offset)

    found, uses = {}, {}
    for top in unit.cursor.get_children():
        if place(top) is None:
            continue
        for cursor in top.walk_preorder():
            at = place(cursor)
            if at is None:
                continue
            kind = cursor.kind
            if kind in KINDS and cursor.spelling:
                parent = cursor.semantic_parent
                if kind == Kind.MACRO_DEFINITION or (parent and parent.kind in SCOPES):
                    own = cursor.linkage == clang.LinkageKind.INTERNAL  # of this file alone
                    scopes, hidden, above = [], False, cursor
                    while above is not None and above.kind in KINDS.keys() | {Kind.NAMESPACE}:
                        hidden |= above.access_specifier in HIDDEN
                        own |= above.kind == Kind.NAMESPACE and not above.spelling
                        if above != cursor and above.spelling not in ("", "ringgrad"):
                            scopes.insert(0, above.spelling)
                        above = above.semantic_parent
                    name = cursor.spelling.split("<")[0] if kind == Kind.CONSTRUCTOR else cursor.spelling
                    defined = kind == Kind.MACRO_DEFINITION or cursor.is_definition()
                    usr = cursor.get_usr() + (at[0] if own else "")
                    found[at] = (usr, name, "::".join(scopes), KINDS[kind], not hidden and not own, defined, cursor.location.line)
                else:
                    uses.setdefault(at, None)
            elif kind.is_reference() or kind in (Kind.DECL_REF_EXPR, Kind.MEMBER_REF_EXPR, Kind.MACRO_INSTANTIATION):
                meant = cursor.referenced if kind != Kind.MACRO_INSTANTIATION else cursor.get_definition()
                if meant is not None and (uses.get(at) is None):
                    uses[at] = place(meant)
    return found, uses


class Names:
    """`texts`: the files, by their paths from `root`. `build` has the compile_commands.json whose targets ringgrad_book… are
    the book."""

    def __init__(self, root, build, texts):
        jobs = []
        for entry in json.loads((build / "compile_commands.json").read_text()):
            if "/ringgrad_book" in entry["command"]:
                options = [word for word in shlex.split(entry["command"]) if word.startswith(("-I", "-D", "-std"))]
                jobs.append((entry["file"], options, os.path.realpath(root), set(texts)))
        self.names = {}  # by USR
        self.at = {}  # (USR, Place) of what is declared or defined there
        self.uses = {}
        lines = {path: text.splitlines() for path, text in texts.items()}
        with multiprocessing.Pool() as pool:
            for found, uses in pool.imap_unordered(read, jobs):
                for (path, offset), (usr, name, scope, kind, public, defined, line) in found.items():
                    if name not in lines[path][line - 1]:
                        continue  # a macro made it up
                    entry = self.names.setdefault(usr, Name(name, scope, kind))
                    entry.public |= public and path.endswith(".h")
                    place = Place(path, offset, line)
                    if defined:
                        entry.definition = place
                    elif place not in entry.declarations:
                        entry.declarations.append(place)
                    self.at[path, offset] = usr, place
                self.uses.update({at: meant for at, meant in uses.items() if meant or at not in self.uses})
        self.by_name = defaultdict(list)
        for name in self.names.values():
            self.by_name[name.name].append(name)

    def meant_at(self, path, offset, word):
        """Returns the meaning of the identifier `word` there: (Name, the Place if it is declared or defined there); (None, None): nothing
        of the book."""
        if (path, offset) in self.at:
            usr, place = self.at[path, offset]
            return self.names[usr], place
        if (path, offset) in self.uses:
            usr, _ = self.at.get(self.uses[path, offset], (None, None))
            name = self.names.get(usr)
            return (name if name and name.name.lstrip("~") == word else None), None
        return (self.called(word) if "_" in word or word[:1].isupper() else None), None

    def places(self, path):
        return [place for _, place in self.at.values() if place.path == path]

    def called(self, text):
        """The one name that is written so, `Class::member`, `function()`; None: there is none, or there are several."""
        *scope, word = text.removesuffix("()").split("::")
        found = [n for n in self.by_name.get(word, ()) if not scope or n.scope.split("::")[-1] == scope[-1]]
        types = [n for n in found if n.kind in ("class", "struct", "enum")]  # rather than their constructors
        found = types or found
        return found[0] if found and len({(n.scope, n.kind) for n in found}) == 1 else None
