"""A file from somebody else is read, or refused in one line, in little memory and time, whatever its bytes are."""

import base64
import io
import json
import os
import resource
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from charsmaps import charsmap
from headscope.cli.compose import compose, parse
from headscope.data.batching import encode_texts
from headscope.data.rows import COLLECTION, read_rows
from headscope.data.tokenizer import tokenizer_of
from headscope.ground.errors import RunError, UserError
from headscope.ground.files import read_json
from headscope.record.reader import is_of_heads, numbers_of, pack, read_index, read_step, read_text
from headscope.record.schema import FOLDER, INDEX, RecordError, Text
from headscope.record.writer import HeadRecorder
from headscope.runs.folder import load_model
from headscope.settings.commands import EvaluateConfig
from headscope.settings.config import DataConfig, TrainConfig, read_config
from headscope.settings.extension import import_paths_in
from headscope.training.resume import LAST, load_last
from records import step_arrays
from training_runs import edit_model
from untrained import untrained

pytestmark = pytest.mark.usefixtures("unchecked_shapes")
CASES = 5_000 if os.environ.get("HARD") == "full" else 75  # of each of four kinds of files
TEXTS = ["the film was lovely and quite warm", "it was dark, and cold"] * 4
SMALL: dict[str, Any] = {"d_model": 8, "num_heads": 2, "num_layers": 1, "feedforward_size": 8}
MOST_MIB = 1024
MOST_SECONDS = 10
Reader = Callable[[Path], object]


def write_model(folder: Path, **options: Any) -> Path:
    return untrained(folder, TEXTS, DataConfig(max_length=16), ["bad", "good"], **SMALL | options)


def write_record(folder: Path) -> Path:
    recorder = HeadRecorder(folder, [Text("first", ["a", "b"], "ab")], classes=["x", "y"])
    recorder.write(7, step_arrays([[np.full((2, 2, 2), 0.5)]]))
    return folder / FOLDER


def read_all(path: Path) -> None:
    """Read a step as TensorBoard does."""
    pack(read_text(path, 0))
    numbers_of(read_step(path, is_of_heads))


def read_record(path: Path) -> None:
    read_index(path.parent)
    read_json(path, dict)


def read_csv(path: Path) -> None:
    assert all(isinstance(row, dict) for row in read_rows(str(path)))


def samples(folder: Path) -> dict[str, tuple[Path, Reader]]:
    """Return a valid file of each kind, and what reads it."""
    model = write_model(folder / "model") / "model.safetensors"
    record = write_record(folder / "run")
    table = folder / "table.csv"
    table.write_text('text,label\n"a, ""b"",\nc",x\nd;=e,"y"\n', encoding="utf-8")
    return {
        "safetensors": (model, lambda path: load_model(path.parent)),
        "npz": (next(record.glob("*.npz")), read_all),
        "json": (record / INDEX, read_record),
        "csv": (table, read_csv),
    }


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Reader]]:
    return samples(tmp_path_factory.mktemp("valid"))


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Return the bytes with some changed, cut out, repeated, or put between; most of the first few."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)) | st.integers(0, min(200, len(found))))
        kind = draw(st.sampled_from(["set", "cut", "insert", "repeat", "end"]))
        some = draw(
            st.binary(min_size=1, max_size=8)
            | st.sampled_from([b"9" * 9, b"\xff" * 8, b'"', b"-1"])
        )
        if kind == "set":
            found[at : at + len(some)] = some
        elif kind == "insert":
            found[at:at] = some
        elif kind == "cut":
            del found[at : at + draw(st.integers(1, 64))]
        elif kind == "repeat":
            found[at:at] = found[at : at + draw(st.integers(1, 64))] * draw(st.integers(1, 50))
        else:
            del found[at:]
    return bytes(found)


def read_or_refused(path: Path, reader: Reader) -> None:
    start = time.process_time()  # of a busy machine
    message = "none"
    try:
        reader(path)
    except (UserError, RecordError) as error:
        message = str(error)
    assert len(message.splitlines()) == 1
    assert len(message) < 1000
    assert time.process_time() - start < MOST_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 < before + MOST_MIB


before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("kind", ["safetensors", "npz", "json", "csv"])
def test_any_bytes_are_read_or_refused_in_one_line(
    valid: dict[str, tuple[Path, Reader]], kind: str
) -> None:
    path, reader = valid[kind]
    content = path.read_bytes()
    reader(path)

    @given(damaged(content))
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
    def check(bytes_of: bytes) -> None:
        path.write_bytes(bytes_of)
        read_or_refused(path, reader)

    try:
        check()
    finally:
        path.write_bytes(content)


def claims(settings: dict[str, Any]) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return what changes the settings, or the labels, in a model's metadata."""

    def change(metadata: dict[str, str]) -> dict[str, str]:
        content = json.loads(metadata["settings"])
        for group, values in settings.items():
            content[group] |= values
        return metadata | {"settings": json.dumps(content)}

    return change


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": {"d_model": 65_536, "num_layers": 9}}, r"expected \[\d+, 65536\] .* got"),
        ({"model": {"feedforward_size": 1_000_000}}, r"expected \[1000000, 8\] .* got \[8, 8\]"),
        ({"model": {"num_layers": 3}}, r"expected .* got none"),
        ({"model": {"num_layers": 1000}}, "num_layers=1000: more than its tensors"),
        (
            {
                "data": {"max_length": 1_000_000, "tokens_per_batch": 1_000_000},
                "model": {"num_heads": 1},
            },
            "at most 64 MiB, got",
        ),
    ],
)
def test_a_network_that_the_file_does_not_hold_takes_no_memory(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    positions = {"positions": "rotary", "d_model": 64, "num_heads": 8} if "data" in settings else {}
    folder = write_model(tmp_path, **positions)
    edit_model(folder, claims(settings))
    with pytest.raises(RunError, match=words):
        load_model(folder)
    read_or_refused(folder, load_model)


def test_classes_that_the_head_does_not_have_are_an_error(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    names = json.dumps([f"class {number}" for number in range(100_000)])
    edit_model(folder, lambda metadata: metadata | {"labels": names})
    with pytest.raises(
        RunError, match=r"expected \[100000, 8\] by its settings|expected \[.*100000"
    ):
        load_model(folder)


def test_the_header_of_a_model_is_bounded_before_it_is_read(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    path = folder / "model.safetensors"
    header = b'{"__metadata__":{"a":"' + b"b" * (48 * 2**20) + b'"}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(RunError, match="its header: expected at most 48 MiB"):
        load_model(folder)


BYTES = [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]
MARKS = [{"type": "Metaspace", "replacement": "x", "prepend_scheme": "always", "split": True}]
TOKENIZERS: dict[str, Any] = {
    "a long replacement": {
        "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 21}
    },
    "between letters": {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"Regex": ""}, "content": "b"}] * 5,
        }
    },
    "many steps": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 40}},
    "before each text": {"normalizer": {"type": "Prepend", "prepend": "b" * 300_000}},
    "marks": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": MARKS * 40}},
    "bytes of bytes": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": BYTES * 3}},
}


@pytest.mark.parametrize("change", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_tokenizer_that_makes_texts_longer_is_an_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    content = json.loads(load_model(write_model(tmp_path))[0].tokenizer.to_str())
    with pytest.raises(
        ValueError,
        match=r"could make a text \d+ times as long, expected at most 20|at most 32 steps .* 4[0-2]",
    ):
        tokenizer_of(json.dumps(content | change))


@pytest.mark.parametrize(("letter", "most"), [("e", 20), ("\ufdfa", 40)])
def test_a_charsmap_makes_little_of_a_letter_that_is_common(
    tmp_path: Path, letter: str, most: int
) -> None:
    content = json.loads(load_model(write_model(tmp_path))[0].tokenizer.to_str())

    def with_charsmap(length: int) -> str:
        table = base64.b64encode(charsmap({letter: "b" * length, "1": "2"})).decode()
        normalizer = {"type": "Precompiled", "precompiled_charsmap": table}
        return json.dumps(content | {"normalizer": normalizer})

    assert tokenizer_of(with_charsmap(most)).normalizer.normalize_str(letter) == "b" * most
    with pytest.raises(ValueError, match=f"make a text {most + 1} times as long"):
        tokenizer_of(with_charsmap(most + 1))


def test_words_that_wordpiece_cuts_are_short(tmp_path: Path) -> None:
    content = json.loads(load_model(write_model(tmp_path))[0].tokenizer.to_str())
    content["model"] |= {"type": "WordPiece", "continuing_subword_prefix": "##"}
    tokenizer_of(
        json.dumps(content | {"model": content["model"] | {"max_input_chars_per_word": 256}})
    )
    content["model"]["max_input_chars_per_word"] = 100_000  # 10 s a word
    with pytest.raises(ValueError, match="max_input_chars_per_word: expected at most 256"):
        tokenizer_of(json.dumps(content))


def test_a_tokenizer_pads_nothing_puts_few_tokens_around_a_text_and_fails_as_others_do(
    tmp_path: Path,
) -> None:
    tokenizer = load_model(write_model(tmp_path))[0].tokenizer
    tokenizer.enable_padding(length=500_000_000)
    assert len(tokenizer_of(tokenizer.to_str()).encode("a").ids) == 3
    content = json.loads(tokenizer.to_str())
    hungry = {"type": "Replace", "pattern": {"Regex": "(a+)+(a+)+(a+)+$"}, "content": ""}
    with pytest.raises(RunError, match="the tokenizer of this model fails: "):
        encode_texts(
            tokenizer_of(json.dumps(content | {"normalizer": hungry})), [("a" * 90 + "b",)]
        )
    content["model"]["unk_token"] = "[GONE]"
    with pytest.raises(ValueError, match=r"is not a tokenizer\.json: .*unknown|vocabulary"):
        tokenizer_of(json.dumps(content))
    content = json.loads(tokenizer.to_str())
    content["model"]["unk_token"] = "?" * 300_000
    content["model"]["vocab"]["?" * 300_000] = 1_000
    with pytest.raises(ValueError, match="a special token has more than 256 characters"):
        tokenizer_of(json.dumps(content))
    content = json.loads(tokenizer.to_str())
    content["post_processor"]["single"] *= 20
    with pytest.raises(ValueError, match="its post_processor repeats a text"):
        tokenizer_of(json.dumps(content))
    start, text, end = json.loads(tokenizer.to_str())["post_processor"]["single"]
    content["post_processor"]["single"] = [start, text] + [end] * 20
    with pytest.raises(ValueError, match="expected at most 16 special tokens around a text"):
        tokenizer_of(json.dumps(content))


def compressed(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


def test_a_record_is_no_larger_than_it_may_be_before_it_is_read(tmp_path: Path) -> None:
    folder = write_record(tmp_path)
    path = next(folder.glob("*.npz"))
    weights = "text_0/layer_0/weights"
    compressed(path, {weights: np.zeros(257 * 2**20, np.uint8)})
    assert path.stat().st_size < 2**20
    with pytest.raises(RecordError, match=r"step_0+7.npz: expected at most 256 MiB, got 257"):
        read_text(path, 0)
    compressed(path, {"roles/score": np.zeros(2**20 + 1)})
    with pytest.raises(RecordError, match="expected at most 4 MiB, got 8"):
        read_step(path, is_of_heads, 4)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
    )
    for shape in ((2**21, 0), (2**17,) + 31 * (1,)):  # of lists, which take memory without a number
        compressed(path, {"roles/score": np.zeros(shape, np.int8)})
        with pytest.raises(ValueError, match="expected at most 1,048,576 lists of numbers, got"):
            numbers_of(read_step(path, is_of_heads, 4))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{weights}.npy", header.getvalue() + bytes(8))
    with pytest.raises(RecordError, match="has another size than its header says"):
        read_text(path, 0)
    (folder / INDEX).write_bytes(b" " * (8 * 2**20 + 1))
    with pytest.raises(RecordError, match=r"index\.json: expected at most 8 MiB, got 8"):
        read_index(folder)


def test_a_text_file_of_a_run_is_not_read_beyond_its_limit(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("#" * (2**20 + 1))
    with pytest.raises(RunError, match=r"config\.yaml is damaged: expected at most 1 MiB, got 1"):
        read_config(tmp_path / "config.yaml")
    lists = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))
    probes = f"l0: &l0 [a, a]\n{lists}\ninspection: {{probes: *l11}}"
    (tmp_path / "config.yaml").write_text(probes)  # 9^11 times "a"
    with pytest.raises(RunError, match="its aliases stand for more than 100,000") as caught:
        read_config(tmp_path / "config.yaml")
    assert len(str(caught.value)) < 10_000


def test_a_device_in_place_of_a_file_of_a_run_is_not_read(tmp_path: Path) -> None:
    """A link to one comes out of an archive; it has no end."""
    (tmp_path / LAST).parent.mkdir()
    (tmp_path / LAST).symlink_to("/dev/zero")
    with pytest.raises(RunError, match=r"last\.ckpt is damaged: it is a pipe or a device"):
        load_last(tmp_path)


def test_no_folder_says_where_files_are_cached(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    edit_model(folder, claims({"data": {"cache_dir": "/elsewhere"}}))
    assert load_model(folder)[0].config.data.cache_dir is None
    (folder / "config.yaml").write_text("data: {cache_dir: /elsewhere}\nresume: /elsewhere")
    config = read_config(folder / "config.yaml")
    assert (config.data.cache_dir, config.resume) == (None, None)


def test_no_text_takes_a_time_of_its_square() -> None:
    """A list that does not end, a word and a path that name no code."""
    started = time.process_time()
    assert COLLECTION.fullmatch("[" + " " * 100_000 + "x") is None
    assert not import_paths_in(["a" * 100_000, "a." * 50_000])
    assert import_paths_in(["x=[a.b:c,'d:e']"]) == {"a.b:c", "d:e"}
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path: {", "while parsing a flow node"),
        ("path: !!python/name:os.system", "could not determine a constructor"),
        ("limit: 0x" + "f" * 5_000, "expected at most 1,000 digits"),
        ("path: &a [*a]", "its aliases stand for more than 100,000 values"),
    ],
)
def test_a_file_of_settings_is_read_or_refused_in_one_line(
    tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text(content)
    words = [f"--config-dir={tmp_path}", "data=mine"]
    for more, schema in (([], TrainConfig), (["run=."], EvaluateConfig)):
        with pytest.raises(UserError, match=message):
            compose(parse([*words, *more], schema))
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(RunError, match=message):
        read_config(tmp_path / "config.yaml")
