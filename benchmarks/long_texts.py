"""Make four sets of long English texts, of 400 words or more: pages, licences, e-mails, articles.

    apt-get download linux-doc-6.1 PACKAGES
    for file in *.deb; do dpkg -x "$file" extracted/"${file%%_*}"; done
    python benchmarks/long_texts.py extracted spam_assassin
    python benchmarks/accuracy.py pages.csv licences.csv mails.csv articles.csv --folder runs

`pages`: a manual page, its section the class (1, 2, 3, 5, 7, 8). `licences`: those of the default
data, in full. `mails`: a folder of parquet files of text and label, here SpamAssassin's.
`articles`: a page of the Linux kernel's documentation, its top folder the class. A class has 40
texts or more. Headings, references, paths and what else names the class are left out; a text is cut
at 20,000 characters. The packages of the manual pages (Debian 12, 2026-11-27):

    manpages-dev systemd manpages inn2 git-man lvm2 postfix groff netpbm iproute2 sg3-utils
    slapd openmpi-doc dpkg-dev libfabric-dev ncurses-doc libssl-doc tcl8.6-doc libx11-doc
    tk8.6-doc texlive-binaries util-linux libsystemd-dev devscripts slurm-client podman
    debhelper libarchive-dev libcurl4-doc rrdtool cryptsetup-bin fvwm3 apt libvirt-clients
    sudo liburing-dev libzmq3-dev zsh-common btrfs-progs libpcre2-dev binutils-common
    samba-common-bin libbsd-dev e2fsprogs libibverbs-dev squid qemu-system-common passwd
    dpkg libpam-modules libxi-dev udev xfsprogs openssh-client procmail snmp ldap-utils
    dovecot-core netsniff-ng ntfs-3g nfs-kernel-server auditd libxt-dev samba nfs-common
    man-db autofs bpftool coreutils mount

Takes less than 2 minutes. Prints a table: texts, classes and words of each set.
"""

import csv
import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from headscope.data import licenses

Rows = Iterator[tuple[str, str]]  # text, label
LEAST_WORDS, MOST_CHARACTERS, LEAST_TEXTS, MOST_OF_A_PACKAGE = 400, 20_000, 40, 80
SECTIONS = {f"man{section}" for section in (1, 2, 3, 5, 7, 8)}
BOILERPLATE = re.compile(
    "NAME|SYNOPSIS|SEE ALSO|AUTHOR|COPYRIGHT|COLOPHON|BUGS|HISTORY|STANDARDS|CONFORMING|VERSIONS"
    "|AVAILABILITY|LIBRARY|ATTRIBUTES|LICENSE|NOTES",
    re.IGNORECASE,
)
FONTS = re.compile(r"^\.\s*(B|I|BR|IR|RB|RI|BI|IB|SB|SM|Nm|Fl|Ar|Cm|Pa|Em|Sy|Dv|Va|Li|Ql)\s+")
ESCAPES = re.compile(r'\\f\[?\w*\]?|\\[&|^%/,)]|"|\\s[-+]?\d+|\\m\[\w*\]|\\[du](?=\W)')
GLYPHS = re.compile(r"\\\(..|\\\*\(..|\\\[\w+\]|\\\*.|\\[a-zA-Z]|\\\s")
REFERENCES = re.compile(r"\(\s*\d\w*\s*\)|\S*/\S*")  # to pages and paths


def pages(root: Path) -> Rows:
    """Yield the text and the section of manual pages, at most 80 of a package and section."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in sorted(root.glob("*/usr/share/man/man*/*.gz")):
        package = path.relative_to(root).parts[0]
        section = path.parent.name
        if section not in SECTIONS or path.is_symlink():
            continue
        page = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        text = " ".join(described(page))
        if is_long(text) and counts[package, section] < MOST_OF_A_PACKAGE:
            counts[package, section] += 1
            yield text, section


def described(page: str) -> Iterator[str]:
    """Yield the lines of a page below its own headings, without the marks of roff."""
    is_read = False
    page = re.sub(r"(?ms)^\.\s*(de1?|ig|TS)\b.*?^\.(\.|TE)$", "", page)  # macros and tables
    for line in page.splitlines():
        if re.match(r"^\.\s*S[Hh]\b", line):
            is_read = BOILERPLATE.search(line) is None
        elif is_read and (FONTS.match(line) or not line.startswith((".", "'"))):
            text = ESCAPES.sub("", FONTS.sub("", line)).replace("\\-", "-")
            yield REFERENCES.sub(" ", GLYPHS.sub(" ", text))


def full_licences() -> Rows:
    """Yield the licences of `headscope.data.licenses` that are longer than its own."""
    licenses.SHORTEST = LEAST_WORDS
    licenses.LONGEST = sys.maxsize
    licenses.FEWEST_OF_A_CLASS = LEAST_TEXTS
    for row in licenses._texts(licenses._package_folder()).to_pylist():
        yield row["text"], row["label"]


def mails(folder: Path) -> Rows:
    """Yield the text and the label of each row of a folder's parquet files."""
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(path, columns=["text", "label"]).to_pylist():
            yield row["text"], str(row["label"])


def articles(root: Path) -> Rows:
    """Yield the text and the top folder of each page of the kernel's documentation."""
    (folder,) = root.glob("linux-doc-*/usr/share/doc/linux-doc-*/html/_sources")
    for path in sorted(folder.rglob("*.rst.txt")):
        top, *below = path.relative_to(folder).parts
        if below and top != "translations":
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            body = "\n".join(line for line in lines if not re.match(r"\s*(\.\.|:[\w-]+:)", line))
            body = re.sub(
                r":[\w:]+:`([^`<]*)(<[^>]*>)?`", r" \1 ", body
            )  # roles with their targets
            yield re.sub(r"[`*|~=#^+_-]{2,}|`", " ", REFERENCES.sub(" ", body)), top


def is_long(text: str) -> bool:
    """Tell whether a text has at least 400 words."""
    return len(text.split()) >= LEAST_WORDS


def write(name: str, rows: Rows) -> None:
    """Write the distinct long texts of classes that have enough as csv."""
    texts: dict[str, str] = {}
    for text, label in rows:
        if is_long(text):
            texts.setdefault(" ".join(text.split())[:MOST_CHARACTERS], label)
    counts = Counter(texts.values())
    kept = [(text, label) for text, label in texts.items() if counts[label] >= LEAST_TEXTS]
    with Path(f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *kept])
    words = sorted(len(text.split()) for text, _ in kept)
    classes = len({label for _, label in kept})
    print(f"| {name} | {len(kept)} | {classes} | {words[len(words) // 2]} |")


def main(extracted: Path, of_mails: Path) -> None:
    """Write the four sets, and print the table."""
    print("| set | texts | classes | words, median |\n|---|---:|---:|---:|")
    write("pages", pages(extracted))
    write("licences", full_licences())
    write("mails", mails(of_mails))
    write("articles", articles(extracted))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
