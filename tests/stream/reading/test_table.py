"""Tables: every kind of file, what is inferred, and every bad input as one line after all that came before it."""

import contextlib
import gzip
import io
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from smoothfbo.errors import UsageError
from smoothfbo.stream.reading import Encoder, infer_schema, open_table
from smoothfbo.stream.reading.lines import LONGEST_LINE


def frame(rows=40, seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "when": pd.date_range("2024-01-01", periods=rows, freq="h"),
            "price": random.normal(size=rows).round(3),
            "colour": random.choice(["red", "green"], rows),
            "demand": random.normal(size=rows).round(3) + 5,
        }
    )


def read(path, target="demand", block=8, **options):
    """All rows that were delivered, and the error that ended it."""
    table = open_table(str(path), target=target, block=block, **options)
    tables, fault = [], None
    try:
        tables.extend(table)
    except UsageError as error:
        fault = str(error)
    assert fault is None or "\n" not in fault
    return (pa.concat_tables(tables) if tables else None), fault


def written(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def lines(rows=40, **changes):
    """CSV lines of `frame`; `changes` replaces whole lines by number, row_20="..."."""
    result = frame(rows).to_csv(index=False).splitlines()
    for key, value in changes.items():
        result[int(key.split("_")[1])] = value
    return "\n".join(result) + "\n"


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "table.parquet"])
def test_all_formats_give_the_same_rows(tmp_path, name):
    expected, path = frame(), tmp_path / name
    if name.endswith("parquet"):
        expected.to_parquet(path)
    else:
        expected.to_csv(path, index=False)
    table, fault = read(path)
    assert fault is None
    pd.testing.assert_frame_equal(table.to_pandas(), expected, check_dtype=False, check_index_type=False)


def test_standard_input_is_read_line_by_line(tmp_path):
    program = (
        "import sys; from smoothfbo.stream.reading import open_table\n"
        "for table in open_table('-', target='demand', block=8): print(table.num_rows, flush=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        text = lines().splitlines(keepends=True)
        child.stdin.write("".join(text[:11]))
        child.stdin.flush()
        counts = [child.stdout.readline()]  # ten rows are out before the next ones are in
        child.stdin.write(text[11])
        child.stdin.flush()
        counts.append(child.stdout.readline())
        child.stdin.close()
    assert [int(count) for count in counts] == [10, 1]


def schema_of(path, target, **choices):
    table = open_table(str(path), target=target, block=8, **choices)
    table.close()
    return table.schema


def test_the_schema_is_inferred_and_said(tmp_path):
    path = written(tmp_path, lines())
    schema = schema_of(path, "demand")
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {"when": "time", "price": "numeric", "colour": "categorical", "demand": "numeric"}
    assert schema.time == "when"
    assert not schema.is_classification
    assert any("regression" in note for note in schema.notes)
    colours = schema_of(path, "colour")
    assert colours.is_classification
    assert colours.classes == 2
    numbers = pa.table({"x": [1.5, 2.5, 3.5], "y": [0, 1, 1]})
    assert infer_schema(numbers, target="y").classes == 2
    assert not infer_schema(numbers, target="y", task="regression").is_classification


def test_text_that_never_repeats_is_named(tmp_path):
    frame = pd.DataFrame({"name": [f"n{i}" for i in range(40)], "number": np.arange(40), "y": np.arange(40) % 7 + 0.5})
    frame.to_csv(tmp_path / "names.csv", index=False)
    notes = [note for note in schema_of(tmp_path / "names.csv", "y").notes if "differs from row to row" in note]
    assert [note.split(" holds")[0] for note in notes] == ["column 'name'"]


def test_a_column_of_names_is_left_out(tmp_path):
    """Unless there are too few rows to tell, or it is meant as labels; a few names that come twice change nothing."""
    names = [f"n{i}" for i in range(195)] + [f"n{i}" for i in range(5)]
    frame = pd.DataFrame({"name": names, "colour": ["red", "blue"] * 100, "y": np.arange(200) / 3})
    frame.to_csv(tmp_path / "names.csv", index=False)
    schema = schema_of(tmp_path / "names.csv", "y")
    assert [column.name for column in schema.columns] == ["colour", "y"]
    assert any("'name'" in note and "left out" in note for note in schema.notes)
    chosen = schema_of(tmp_path / "names.csv", "y", categorical=("name",))
    assert [column.name for column in chosen.columns] == ["name", "colour", "y"]
    frame.head(60).to_csv(tmp_path / "names.csv", index=False)
    assert [column.name for column in schema_of(tmp_path / "names.csv", "y").columns] == ["name", "colour", "y"]


def test_times_with_slashes_whose_year_is_first(tmp_path):
    days = pd.date_range("2024-01-30", periods=40)
    rest = pd.DataFrame({"y": np.arange(40) / 3})
    for form in ("%Y/%m/%d", "%Y/%m/%d %H:%M"):
        rest.assign(day=days.strftime(form)).to_csv(tmp_path / "slashes.csv", index=False)
        table = open_table(str(tmp_path / "slashes.csv"), target="y", block=16)
        assert table.schema.time == "day"
        read = pa.concat_tables(table)["day"].to_pandas()
        np.testing.assert_array_equal(read, days)
    # Which is the month, which the year? Such text stays text.
    rest.assign(day=days.strftime("%y/%m/%d")).to_csv(tmp_path / "slashes.csv", index=False)
    assert schema_of(tmp_path / "slashes.csv", "y").time is None
    wrong = days.strftime("%Y/%m/%d").where(np.arange(40) != 30, "2024/02/31")
    rest.assign(day=wrong).to_csv(tmp_path / "slashes.csv", index=False)
    assert schema_of(tmp_path / "slashes.csv", "y").time is None


def test_a_wrong_time_with_slashes_that_comes_late_is_named(tmp_path):
    days = pd.date_range("2000-01-01", periods=1_100).strftime("%Y/%m/%d")
    days = days.where(np.arange(1_100) != 1_050, "2024/02/31")
    pd.DataFrame({"day": days, "y": np.arange(1_100) / 3}).to_csv(tmp_path / "slashes.csv", index=False)
    with pytest.raises(UsageError, match="row 1051, column 'day': '2024/02/31' is not a time"):
        list(open_table(str(tmp_path / "slashes.csv"), target="y", block=16))


def test_amounts_are_not_classes_and_marks_are():
    random = np.random.default_rng(0)
    weights = pa.table({"x": random.normal(size=600), "y": random.integers(50, 90, 600)})
    assert not infer_schema(weights, target="y").is_classification
    assert not infer_schema(weights.slice(0, 16), target="y").is_classification
    marks = pa.table({"x": random.normal(size=600), "y": random.integers(1, 7, 600)})
    assert infer_schema(marks, target="y").is_classification


def test_times_that_are_not_used_are_named():
    day = pd.date_range("2024-01-01", periods=40)
    two = pa.Table.from_pandas(pd.DataFrame({"order": day, "delivery": day, "y": np.arange(40) / 3}))
    schema = infer_schema(two, target="y")
    assert schema.time is None
    assert "columns 'order', 'delivery': times, which are not used; `time` says which one is used" in schema.notes
    chosen = infer_schema(two, target="y", time="order")
    assert "column 'delivery': times, which are not used; `time` is 'order'" in chosen.notes
    one = infer_schema(two, target="y", ignore=("delivery",))
    assert one.time == "order"
    assert not any("not used" in note for note in one.notes)
    of_day = pa.table({"at": pa.array([1, 2, 3], pa.time32("s")), "y": [0.5, 1.5, 2.5]})
    with pytest.raises(UsageError, match=r"times of day without a date; .* `ignore` leaves it out"):
        infer_schema(of_day, target="y")


@pytest.mark.parametrize(
    ("values", "mark"),
    [
        (["1,5", "-0,25"], "a comma"),
        (["1,234.5", "1,234"], "a comma"),
        (["1.234,5", "7,0"], "a comma"),
        (["12%", "7.5 %"], "'%'"),
        (["$1200", "-$3.5"], "'\\$'"),
        (["1 200", "1\u202f300.5"], "' '"),
        (["1'200", "980"], '"\'"'),
        (["١٢", "٣"], "'١'"),  # digits, but none that are read
    ],
)
def test_numbers_with_marks_are_no_classes(values, mark):
    numbers = pa.table({"y": values * 20})
    with pytest.raises(UsageError, match=f"row 1, column 'y': .* has {mark}; numbers have a decimal point"):
        infer_schema(numbers, target="y")
    assert infer_schema(numbers, target="y", categorical=("y",)).is_classification
    for labels in (["1,2", "Smith, J."], ["10-20", "20-30"], ["1a", "2b"], ["12:30", "13:00"]):
        assert infer_schema(pa.table({"y": labels * 20}), target="y").is_classification


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (b"a,b\r1,2\r", "newlines, not with carriage returns alone"),
        (b'"a,b\n', "a quote is not closed"),
        ("ä,b\n".encode("latin-1"), "not UTF-8 text"),
    ],
)
def test_a_header_that_cannot_be_read_is_named(tmp_path, header, what):
    with pytest.raises(UsageError, match=f"line 1: the header .*{what}"):
        read(written(tmp_path, header))


FAULTS = {
    "text in a numeric column": (
        lines(row_21="2024-01-01 20:00:00,cheap,red,5"),
        20,
        "row 21, column 'price': 'cheap' is",
    ),
    "text in the first block": (
        lines(row_3="2024-01-01 02:00:00,cheap,red,5"),
        None,
        "row 3, column 'price': 'cheap' is not",
    ),
    "decimal comma": (
        lines(row_3='2024-01-01 02:00:00,"1,5",red,5'),
        None,
        "row 3, column 'price': '1,5' has a comma; numbers have a decimal point",
    ),
    "not a time": (lines(row_21="soon,1,red,5"), 20, "row 21, column 'when': 'soon' is not a time"),
    "a column appears": (lines(row_21="2024-01-01 20:00:00,1,red,5,9"), 20, "row 21: 5 values for 4 columns; a column"),
    "a column disappears": (
        lines(row_21="2024-01-01 20:00:00,1,red"),
        20,
        "row 21, column 'demand': no value",
    ),
    "infinite": (lines(row_21="2024-01-01 20:00:00,inf,red,5"), 20, "row 21, column 'price': an infinite value"),
    "overflow": (lines(row_21="2024-01-01 20:00:00,1e999,red,5"), 20, "row 21, column 'price': an infinite value"),
    "missing time": (lines(row_21=",1,red,5"), 20, "row 21, column 'when': a missing time"),
    "NUL byte": (lines(row_21="2024-01-01 20:00:00,1,r\0d,5"), 20, "line 22: a NUL byte"),
    "long line": (lines(row_21="x" * 10_000_000), 20, "line 22: longer than"),
    "open quote": (lines(row_21='2024-01-01 20:00:00,1,"red,5'), 20, "row 21: a quote that is not closed"),
    "duplicate names": (lines(row_0="when,price,price,demand"), None, "column 'price' appears twice (columns 2 and 3)"),
    "empty": ("", None, "is empty"),
    "blank": ("\n\n", None, "is empty"),
    "header only": ("price,demand\n", None, "a header and no rows"),
    "too few rows": (lines(rows=5), None, "has 5 rows, fewer than one block of 8"),
    "no-break space": (
        lines(row_21="2024-01-01 20:00:00,1\u00a0,red,5"),
        20,
        "column 'price': '1\\xa0' is not a",
    ),
    "record separator": (
        lines(row_21="2024-01-01 20:00:00,1\x1e,red,5"),
        20,
        "column 'price': '1\\x1e' is not a",
    ),
    "line separator": (lines(row_21="2024-01-01 20:00:00,1,red,5\u2028"), 20, "column 'demand': '5\\u2028' is not a"),
    "too large": (
        lines(row_21="2024-01-01 20:00:00,1,red,1e308"),
        20,
        "row 21, column 'demand': a value beyond",
    ),
    "not UTF-8, later": (
        lines(row_21="2024-01-01 20:00:00,1,rot,5").encode().replace(b"rot", b"r\xf6t"),
        20,
        "row 21: not UTF-8 text",
    ),
    "not UTF-8": (lines().encode().replace(b"red", b"r\xe9d"), None, "not UTF-8 text"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_bad_input_is_one_line_after_everything_before_it(tmp_path, case):
    text, before, message = FAULTS[case]
    path = written(tmp_path, text)
    if before is None:
        with pytest.raises(UsageError) as caught:
            read(path)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    else:
        table, fault = read(path)
        assert message in fault
        assert fault.startswith(str(path))
        pd.testing.assert_frame_equal(table.to_pandas(), frame()[:before], check_dtype=False)


def test_a_file_that_is_not_there_or_not_a_table(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere.csv does not exist"):
        read(tmp_path / "nowhere.csv")
    with pytest.raises(UsageError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(UsageError, match="not a Parquet file, or it is truncated"):
        read(written(tmp_path, b"PAR1 nonsense", "table.parquet"))


def test_truncated_files(tmp_path):
    text = lines(rows=5000).encode()
    packed = gzip.compress(text)
    table, fault = read(written(tmp_path, packed[: len(packed) * 2 // 3], "table.csv.gz"))
    assert "the gzip file is truncated or damaged" in fault
    assert 1000 < table.num_rows < 5000
    assert table.to_pandas()["price"].equals(frame(5000)["price"][: table.num_rows])
    buffer = io.BytesIO()
    frame(5000).to_parquet(buffer)
    with pytest.raises(UsageError, match="truncated"):
        read(written(tmp_path, buffer.getvalue()[:-100], "table.parquet"))


def test_misspelt_columns_get_a_suggestion(tmp_path):
    path = written(tmp_path, lines())
    for target, hint in {
        "demnd": "did you mean 'demand'?",
        "Demand": "did you mean 'demand'?",
        "zzz": "there are 'when'",
    }.items():
        with pytest.raises(UsageError, match=f"`target` {target}: no such column") as caught:
            read(path, target=target)
        assert hint in str(caught.value)
    with pytest.raises(UsageError, match="`time` wen: no such column; did you mean 'when'"):
        read(path, time="wen")
    with pytest.raises(UsageError, match="`categorical` x: no such column"):
        read(path, categorical=("x",))
    with pytest.raises(UsageError, match="`target` when holds times"):
        read(path, target="when")


def encode(path, lags=(1,), horizon=1, **options):
    table = open_table(str(path), block=8, **{"target": "demand", **options})
    with contextlib.closing(table):
        encoder = Encoder(table.schema, lags, horizon, str(path))
        return encoder, *encode_all(encoder, table)


def encode_all(encoder, table):
    parts, fault = [], None
    for portion in table:
        part, _, fault = encoder.encode(portion)
        parts.append(part)
        if fault is not None:
            break
    joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ("features", "target", "previous")}
    return joined, fault


def test_features_are_what_they_say(tmp_path):
    expected = frame()
    encoder, rows, _ = encode(written(tmp_path, lines()), lags=(1, 3))
    column = {name: rows["features"][:, i] for i, name in enumerate(encoder.names)}
    np.testing.assert_array_equal(column["price"], expected["price"])
    np.testing.assert_array_equal(column["colour=red"], expected["colour"] == "red")
    np.testing.assert_array_equal(column["colour=other"], 0)
    np.testing.assert_array_equal(column["demand[-1]"][1:], expected["demand"][:-1])
    np.testing.assert_array_equal(column["demand[-3]"], expected["demand"].shift(3))
    angle = 2 * np.pi * expected["when"].dt.hour / 24
    np.testing.assert_allclose(column["sine of day"], np.sin(angle), atol=1e-9)
    assert "colour=other" in encoder.constant_columns
    _, later, _ = encode(written(tmp_path, lines()), lags=(1,), horizon=4)
    np.testing.assert_array_equal(later["previous"], expected["demand"].shift(4))
    np.testing.assert_array_equal(later["features"][:, encoder.names.index("demand[-1]")], expected["demand"].shift(4))


def test_missing_values_come_from_the_past_and_are_counted(tmp_path):
    text = lines(
        row_10="2024-01-01 09:00:00,,red,NA", row_11="2024-01-01 10:00:00,?,,5", row_1="2024-01-01 00:00:00,,red,5"
    )
    encoder, rows, _ = encode(written(tmp_path, text))
    assert encoder.missing == {"when": 0, "price": 3, "colour": 1, "demand": 1}
    price = rows["features"][:, encoder.names.index("price")]
    assert np.isnan(price[0])  # nothing is known yet
    assert price[8] == price[9] == price[10] == frame()["price"][8]
    assert np.isnan(rows["target"][9])
    assert rows["previous"][10] == frame()["demand"][8]
    _, fault = read(written(tmp_path, text), missing="error")
    assert "row 1, column 'price': a missing value" in fault


def test_times_must_not_go_back(tmp_path):
    path = written(tmp_path, lines(row_21="2023-12-31 20:00:00,1,red,5"))
    encoder, rows, fault = encode(path, time="when")
    assert "row 21, column 'when': 2023-12-31" in str(fault)
    assert len(rows["target"]) == encoder.rows == 20
    _, rows, fault = encode(path, time="when", sort=True)
    assert fault is None
    assert rows["target"][0] == 5
    assert len(rows["target"]) == 40
    with pytest.raises(UsageError, match="holds text; allowed are times"):
        encode(path, time="colour")


def test_a_class_that_appears_later_gets_the_next_number(tmp_path):
    path = written(tmp_path, lines(row_30="2024-01-02 05:00:00,1,violet,5"))
    encoder, rows, _ = encode(path, target="colour", lags=())
    assert encoder.classes[2:] == ["violet"]  # the classes of the first rows come first
    assert rows["target"][29] == 2


def test_odd_names_survive(tmp_path):
    odd = ["<script>alert(1)</script>", 'a "quoted", b', "tab\there", "ünïcode"]
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 4)), columns=odd)
    path = tmp_path / "odd.csv"
    table.to_csv(path, index=False)
    result, fault = read(path, target=odd[0])
    assert fault is None
    assert result.column_names == odd


def test_a_line_just_short_enough_is_read(tmp_path):
    path = written(tmp_path, lines(row_21="2024-01-01 20:00:00,1," + "x" * (LONGEST_LINE - 100) + ",5"))
    table, fault = read(path)
    assert fault is None
    assert table.num_rows == 40


def test_a_line_of_spaces_is_no_row(tmp_path):
    text = lines(row_5="  ", row_21=" \t ", row_30="")
    table, fault = read(written(tmp_path, text))
    assert fault is None
    pd.testing.assert_frame_equal(
        table.to_pandas(), frame().drop([4, 20, 29]).reset_index(drop=True), check_dtype=False
    )


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_nanoseconds_are_times(tmp_path, name):
    expected = frame()
    expected["when"] = expected["when"] + pd.to_timedelta(np.arange(40) * 7 + 123_456_789, unit="ns")
    path = tmp_path / name
    expected.to_parquet(path) if name.endswith("parquet") else expected.to_csv(path, index=False)
    encoder, rows, fault = encode(path)
    assert fault is None
    angle = 2 * np.pi * (expected["when"].dt.hour / 24)
    np.testing.assert_allclose(rows["features"][:, encoder.names.index("sine of day")], np.sin(angle), atol=1e-3)


def test_fractions_of_seconds_may_come_later(tmp_path):
    table, fault = read(written(tmp_path, lines(row_21="2024-01-01 20:00:00.25,1,red,5")))
    assert fault is None
    assert table["when"][20].as_py().microsecond == 250_000


@pytest.mark.parametrize("words", [("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("yes", "no")])
def test_truth_values_are_two_levels_and_two_classes(tmp_path, words):
    random = np.random.default_rng(0)
    flags = random.random(60) < 0.5
    text = "".join(f"{words[int(not flag)]},{i}.5\n" for i, flag in enumerate(flags))
    path = written(tmp_path, "flag,y\n" + text)
    encoder, rows, _ = encode(path, target="y", lags=())
    column = {name: rows["features"][:, i] for i, name in enumerate(encoder.names)}
    np.testing.assert_array_equal(column[f"flag={words[0]}"], flags)
    np.testing.assert_array_equal(column["flag=other"], 0)
    encoder, rows, _ = encode(path, target="flag", lags=(1,))
    assert sorted(encoder.classes) == sorted(words)
    np.testing.assert_array_equal(rows["target"] == encoder.classes.index(words[0]), flags)


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
@pytest.mark.parametrize("is_missing", [False, True])
def test_labels_are_the_same_in_every_file(tmp_path, name, is_missing):
    """Where one value is missing, pandas makes floats of integers; a learner that goes on must know them again."""
    table = pd.DataFrame({"store": [3, 12, 0, -7] * 5, "flag": [True, False] * 10, "kind": ["v1.0", "1.05"] * 10})
    table["demand"] = np.arange(20) + 0.5
    if is_missing:
        table["store"] = table["store"].where(table.index != 19)
    (table.to_parquet if name.endswith("parquet") else table.to_csv)(tmp_path / name, index=False)
    found, fault = read(tmp_path / name, categorical=("store",))
    assert fault is None
    assert found["store"].to_pylist()[:19] == (["3", "12", "0", "-7"] * 5)[:19]
    assert found["store"][19].as_py() == (None if is_missing else "-7")
    assert found["flag"].to_pylist() == ["True", "False"] * 10
    assert found["kind"].to_pylist() == ["v1.0", "1.05"] * 10


def test_levels_get_a_feature_as_they_come_until_there_is_no_room(tmp_path):
    levels = ["a"] * 1_100 + [f"level {i // 3}" for i in range(60)]  # 20 new ones after the first 1,000 rows
    path = written(tmp_path, "kind,y\n" + "".join(f"{level},{i}.5\n" for i, level in enumerate(levels)))
    encoder, rows, _ = encode(path, target="y", lags=())
    assert encoder.levels["kind"] == ["a", *(f"level {i}" for i in range(7))]  # eight slots
    assert rows["features"].shape == (1_160, 9)
    for slot, level in enumerate(encoder.levels["kind"]):
        np.testing.assert_array_equal(rows["features"][:, slot], np.array(levels) == level)
    np.testing.assert_array_equal(rows["features"].sum(axis=1), 1)  # all others share the last feature
    half, _, _ = encode(written(tmp_path, "kind,y\n" + "".join(f"k{i % 30},{i}.5\n" for i in range(90))), target="y")
    assert len(half.levels["kind"]) == 20


def test_standard_input_is_looked_at_for_a_second_and_no_longer(tmp_path):
    program = (
        "import time, sys; from smoothfbo.stream.reading import open_table\n"
        "table = open_table('-', target='y', block=8); print(table.schema.is_classification, flush=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        child.stdin.write("y\n" + "1\n2\n" * 5)
        child.stdin.flush()
        time.sleep(0.2)
        child.stdin.write("".join(f"{i}\n" for i in range(40)))  # now they look like amounts
        child.stdin.flush()
        assert child.stdout.readline() == "False\n"  # and standard input is still open
        child.stdin.close()
