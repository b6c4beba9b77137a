"""Go's own verifier of signed notes and Merkle trees, from the sources that come with Go."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_PROGRAM = """package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func check(err error) {
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
}

func main() {
	verifier, err := note.NewVerifier(os.Args[1])
	check(err)
	input, err := io.ReadAll(os.Stdin)
	check(err)
	proof, signed, _ := strings.Cut(string(input), "\\n\\n")
	lines := strings.Split(proof, "\\n")
	entry, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra "))
	check(err)
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	check(err)
	var path tlog.RecordProof
	for _, line := range lines[3:] {
		hash, err := tlog.ParseHash(line)
		check(err)
		path = append(path, hash)
	}
	opened, err := note.Open([]byte(signed), note.VerifierList(verifier))
	check(err)
	head := strings.Split(opened.Text, "\\n")
	if head[0] != verifier.Name() || lines[0] != "c2sp.org/tlog-proof@v1" {
		check(fmt.Errorf("another log, or another form"))
	}
	size, err := strconv.ParseInt(head[1], 10, 64)
	check(err)
	root, err := tlog.ParseHash(head[2])
	check(err)
	check(tlog.CheckRecord(path, size, root, index, tlog.RecordHash(entry)))
	fmt.Printf("%d of %d: %s", index, size, entry)
}
"""


def built(folder: Path) -> Path:
    """Return a program that checks a tlog-proof on its input with the key that it is given."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go: its own verifier checks proofs where it is installed")
    answer = subprocess.run(
        [go, "env", "GOROOT", "GOVERSION"], capture_output=True, text=True, check=True
    )
    root, version = answer.stdout.split()
    language = ".".join(version.removeprefix("go").split(".")[:2])
    vendored = Path(root, "src", "cmd", "vendor", "golang.org", "x", "mod")
    for part in ("internal", "sumdb/note", "sumdb/tlog"):
        shutil.copytree(vendored / part, folder / "mod" / part)
    (folder / "mod" / "go.mod").write_text(f"module golang.org/x/mod\n\ngo {language}\n")
    (folder / "go.mod").write_text(
        f"module verify\n\ngo {language}\n\nrequire golang.org/x/mod v0.0.0\n\n"
        "replace golang.org/x/mod => ./mod\n"
    )
    (folder / "main.go").write_text(_PROGRAM)
    program = folder / "verify"
    subprocess.run([go, "build", "-o", str(program), "."], cwd=folder, check=True)
    return program
