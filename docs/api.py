#!/usr/bin/env python3
"""The public names of the library, and what has become of them since the last release: docs/api.txt lists those of the
release whose version its first line has.

    api.py              says what was added, removed or changed since, and which version that asks for
    api.py --check      the same, and exits with 1 where the version of CMakeLists.txt does not say it
    api.py --write      lists the names as they are, as those of the version of CMakeLists.txt: with a release
    api.py --self-test  feeds declarations to each rule

Public is what the headers of the folders' top levels declare, and those that include/ names, but for private members and
namespaces called `detail`. A name that is gone or has another type asks for a new major version; one that is new, or has
a further parameter with a default, for a minor one. Names and default values of parameters are no part of it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "docs" / "api.txt"
FOLDERS = ("core", "autograd", "nn", "nn/optim", "data", "distributed", "models")
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.S)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
TOKEN = re.compile(r'"[^"]*"|[A-Za-z_]\w*|\d[\w.]*|::|->|&&|\.\.\.|\S')
OPEN, CLOSE = "([{", ")]}"


def public_headers():
    headers = {path for folder in FOLDERS for path in (ROOT / folder).glob("*.h")}
    for part in (ROOT / "include" / "ringgrad").glob("*.h"):
        headers |= {ROOT / name for name in re.findall(r'#include "ringgrad/(\S+/\S+)"', part.read_text())}
    return sorted(headers)


def tokens_of(text):
    return TOKEN.findall(PREPROCESSOR.sub("", COMMENT.sub(lambda m: m[1] or " ", text)))


def closing(tokens, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(tokens)):
        depth += (tokens[place] in OPEN) - (tokens[place] in CLOSE)
        if depth == 0:
            return place
    raise ValueError(f"no bracket closes {' '.join(tokens[at : at + 8])}")


def split(tokens, separator):
    """The parts between separators that stand within no brackets."""
    parts, depth = [[]], 0
    for place, token in enumerate(tokens):
        depth += (token in "([{<") - (token in ")]}>")
        if token == separator and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def parameter(tokens):
    """Its type; with = where it has a default."""
    left, *default = split(tokens, "=")
    named = len(left) > 1 and re.match(r"[A-Za-z_]\w*$", left[-1]) and left[-2] not in ("::", "const", "typename", "class", "unsigned")
    return text_of(left[:-1] if named else left) + ("=" if default else "")


def text_of(tokens):
    text = " ".join(tokens)
    text = re.sub(r" ?(::|[()<>\[\],&*~]|\.\.\.|->) ?", r"\1", text)
    return re.sub(r",", ", ", text)


def declaration(tokens):
    """A declaration in one form: without names of parameters, initialisers and bodies."""
    tokens = [t for t in tokens if t not in ("inline", "constexpr", "virtual", "override", "explicit", "static", "extern", "noexcept")]
    tokens = re.sub(r"\[ \[ \w+ \] \]", "", " ".join(tokens)).split()
    begin = next((i for i, t in enumerate(tokens) if t == "(" and i and tokens[i - 1] not in ("operator", "requires", "decltype")), None)
    if begin is None or "=" in tokens[:begin]:
        head = split(tokens, "=")[0] if tokens[:1] != ["using"] else tokens
        return text_of(head)
    end = closing(tokens, begin)
    rest = split(tokens[end + 1 :], "=")[0]
    rest = split(rest, ":")[0]  # what a constructor initialises
    parameters = [parameter(part) for part in split(tokens[begin + 1 : end], ",") if part]
    return text_of(tokens[:begin]) + "(" + ", ".join(parameters) + ")" + (" " + text_of(rest) if rest else "")


def names_in(tokens, scope="", kind="namespace", public=True):
    """The public declarations among these tokens, each with the scope that it stands in."""
    found, pending, at = [], [], 0

    def keep():
        first = [t for t in pending if t not in ("inline", "static")][:1]
        gone = pending[-2:] in (["=", "delete"], ["=", "default"]) or (len(pending) == 2 and pending[0] in ("class", "struct"))
        if public and pending and first[0] not in ("friend", "static_assert") and not gone:
            found.append(scope + " " + declaration(pending))
        pending.clear()

    while at < len(tokens):
        token = tokens[at]
        if token in "([":
            end = closing(tokens, at)
            pending += tokens[at : end + 1]
            at = end
            if re.match(r"[A-Z][A-Z_]+$", pending[0]) and kind == "namespace":  # a macro that declares what it is given
                pending[1:] = ["<", pending[2], ">"]
                keep()
        elif token == ";":
            keep()
        elif token == ":" and pending and pending[-1] in ("public", "private", "protected"):
            public = pending[-1] != "private"
            pending.clear()
        elif token == "{":
            end = closing(tokens, at)
            words = without_template(pending)
            inside = tokens[at + 1 : end]
            if words[:1] == ["namespace"] or words[:2] == ["inline", "namespace"]:
                name = "".join(words[words.index("namespace") + 1 :])
                if name and name != "detail":
                    found += names_in(inside, f"{scope}::{name}".removeprefix("::"))
                pending.clear()
            elif words[:1] in (["class"], ["struct"], ["union"]) and "(" not in words and "=" not in words:
                name = words[1] if len(words) > 1 else "(nameless)"
                if public:
                    found.append(f"{scope} {text_of(pending)}")
                    found += names_in(inside, f"{scope}::{name}", "class", words[0] != "class")
                pending = []
            elif words[:1] == ["enum"]:
                if public:
                    found += [f"{scope} {text_of(pending)}"] + [f"{scope} {text_of(pending)} {split(value, '=')[0][0]}"
                                                                for value in split(inside, ",") if value]
                pending = []
            elif "(" in words and "=" not in split_signature(words) and pending[-1] not in ("operator",):
                initialises = ":" in split_top(pending) and re.match(r"\w|>", pending[-1])
                if initialises:
                    pending.append("{}")
                else:
                    keep()
                    if tokens[end + 1 : end + 2] == [";"]:
                        end += 1
            else:
                pending += ["=", "0"] if "=" not in pending else []  # an initialiser
            at = end
        else:
            pending.append(token)
        at += 1
    return found


def without_template(tokens):
    """Without template <…> and what it requires, before a class or a function."""
    while tokens[:1] == ["template"]:
        depth = 0
        for place, token in enumerate(tokens):
            depth += (token == "<") - (token == ">")
            if token == ">" and depth == 0:
                break
        tokens = tokens[place + 1 :]
    if tokens[:1] == ["requires"]:
        classes = [i for i, t in enumerate(tokens) if t in ("class", "struct")]
        tokens = tokens[classes[0] :] if classes else tokens
    return tokens


def split_top(tokens):
    """The tokens that stand within no round or square brackets."""
    depth, left = 0, []
    for token in tokens:
        depth -= token in ")]"
        if depth == 0:
            left.append(token)
        depth += token in "(["
    return left


def split_signature(tokens):
    return split_top(tokens[: tokens.index("(")])


def listed():
    return sorted({name for header in public_headers() for name in names_in(tokens_of(header.read_text())) if not name.endswith(" ")})


def shorter(name):
    """The same function with as few parameters as a caller may give: f(A, B=) is f(A) and f() is f()."""
    forms = {name}
    while match := re.match(r"(.*[(,])(?: ?[^(),]|\([^()]*\))*=\)(.*)$", name):
        name = match[1].rstrip(",").rstrip() + ")" + match[2]
        forms.add(name)
    return forms


def difference(before, now):
    removed, added = sorted(set(before) - set(now)), sorted(set(now) - set(before))
    still = {form for name in added for form in shorter(name)}
    return [name for name in removed if name not in still], added


def next_version(version, removed, added):
    major, minor, patch = map(int, version.split("."))
    if removed:
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if added else version


def as_numbers(version):
    return tuple(map(int, version.split(".")))


def own_version():
    return re.search(r"project\(ringgrad VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    now, version = listed(), own_version()
    if arguments == ["--write"]:
        LIST.write_text("\n".join([version, *now]) + "\n")
        print(f"{len(now)} names of {version} are in {LIST.relative_to(ROOT)}")
        return 0
    released, *before = LIST.read_text().splitlines()
    removed, added = difference(before, now)
    for sign, names in (("-", removed), ("+", added)):
        print("".join(f"{sign} {name}\n" for name in names), end="")
    wanted = next_version(released, removed, added)
    print(f"{len(now)} public names; since {released}: {len(added)} added, {len(removed)} removed or changed")
    if as_numbers(version) >= as_numbers(wanted):
        return 0
    print(f"CMakeLists.txt has VERSION {version}, and what became of the names since {released} asks for {wanted}.\n"
          f"Write that there, and in CHANGELOG.md; or, where {released} is not released yet: docs/api.py --write")
    return 1 if "--check" in arguments else 0


def self_test():
    header = """
        #pragma once
        namespace a::b {  // a comment; with { brackets
        class Tensor;
        enum class Kind : uint8_t { One, Two = 2 };
        struct Options { double lr = 0.1; std::vector<int> sizes{1, 2}; bool on = false; };
        template <class T> class Box : public Base { public: Box(int n = 3) : n_(n), m_{n} { f(); } T get(const T& x) const { return x; }
          Box(const Box&) = delete; void operator()(int) const; private: int n_; int hidden(); };
        inline int twice(const Tensor& x, Options options = {}, int k = 2) { return 2; }
        namespace detail { int secret(); }
        using Run = std::function<int(int)>;
        }
    """
    names = names_in(tokens_of(header))
    expected = ["a::b enum class Kind:uint8_t One", "a::b::Options double lr", "a::b::Options std::vector<int>sizes",
                "a::b::Options bool on", "a::b template<class T>class Box:public Base", "a::b::Box Box(int=)", "a::b::Box T get(const T&) const",
                "a::b::Box void operator()(int) const", "a::b int twice(const Tensor&, Options=, int=)"]
    missing = [name for name in expected if name not in [re.sub(" : ", ":", n) for n in names]]
    assert not missing, (missing, names)
    assert not [name for name in names if "hidden" in name or "n_" in name or "secret" in name], names
    f = "a int f(int)"
    cases = (
        ([f], [f], "1.2.3"), ([f], [f, "a int g()"], "1.3.0"), ([f, "a int g()"], [f], "2.0.0"), ([f], ["a long f(int)"], "2.0.0"),
        ([f], ["a int f(int, bool=)"], "1.3.0"), ([f], ["a int f(int, bool)"], "2.0.0"), (["a int f(int=)"], [f], "2.0.0"),
    )
    for before, now, wanted in cases:
        assert next_version("1.2.3", *difference(before, now)) == wanted, (before, now)
    print(f"{len(expected) + len(cases)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
