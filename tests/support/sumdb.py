"""Go's own verifier of signed notes and Merkle trees, from the sources that come with Go."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_PROGRAM = """package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
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

// cosigner verifies cosignature/v1 of c2sp.org/tlog-cosignature.
type cosigner struct {
	name string
	hash uint32
	key  ed25519.PublicKey
}

func (c cosigner) Name() string    { return c.name }
func (c cosigner) KeyHash() uint32 { return c.hash }
func (c cosigner) Verify(msg, sig []byte) bool {
	if len(sig) != 8+ed25519.SignatureSize {
		return false
	}
	signed := fmt.Sprintf("cosignature/v1\\ntime %d\\n%s", binary.BigEndian.Uint64(sig), msg)
	return ed25519.Verify(c.key, []byte(signed), sig[8:])
}

func newCosigner(vkey string) cosigner {
	parts := strings.SplitN(vkey, "+", 3)
	hash, err := strconv.ParseUint(parts[1], 16, 32)
	check(err)
	key, err := base64.StdEncoding.DecodeString(parts[2])
	check(err)
	if key[0] != 4 {
		check(fmt.Errorf("no key of cosignatures"))
	}
	return cosigner{parts[0], uint32(hash), key[1:]}
}

func main() {
	verifier, err := note.NewVerifier(os.Args[1])
	check(err)
	verifiers := []note.Verifier{verifier}
	for _, vkey := range os.Args[2:] {
		verifiers = append(verifiers, newCosigner(vkey))
	}
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
	opened, err := note.Open([]byte(signed), note.VerifierList(verifiers...))
	check(err)
	if len(opened.Sigs) != len(verifiers) {
		check(fmt.Errorf("%d of %d have signed it", len(opened.Sigs), len(verifiers)))
	}
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
    """Return a program that checks a tlog-proof on its input with the keys that it is given.

    The first is the log's; the others are witnesses', all of which must have cosigned it.
    """
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
