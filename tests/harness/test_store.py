"""Files are written whole or not at all."""

import os

import pytest

from smoothfbo.errors import UsageError
from smoothfbo.harness import store


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append("fsync") or sync(number))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    store.write_json(tmp_path / "a.json", {"a": 1})
    assert calls == ["fsync", "replace"]
    assert store.read_json(tmp_path / "a.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "a.npz").write_text("x")
    (tmp_path / "a.parquet").write_text("x")
    readers = {"a.json": store.read_json, "a.npz": store.read_arrays, "a.parquet": store.read_table}
    for name, read in readers.items():
        with pytest.raises(UsageError, match=f"{name} cannot be read: ") as found:
            read(tmp_path / name)
        assert "\n" not in str(found.value)
