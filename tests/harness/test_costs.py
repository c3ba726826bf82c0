"""The model of the cost against what was measured: some stored figures give its numbers, it predicts the others."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from stored_results import missing

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import measure, workers
from smoothfbo.harness import checkpoints
from smoothfbo.harness.costs import Costs, Device, Layout, bytes_of, seconds

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
WITHIN = 1.25
PAGE = "how-to/scaling.md"


def cases(name, **where):
    found = json.loads((RESULTS / f"{name}.json").read_text())["cases"]
    return [case for case in found if all(case.get(key) == value for key, value in where.items())]


def close(predicted, measured):
    assert measured / WITHIN <= predicted <= measured * WITHIN, (predicted, measured)


def gpu():
    """p and q of FBO on an H200, from 1 and 1,000 lanes."""
    times = {case["lanes"]: case["microseconds_per_step"] / 1e6 for case in cases("gpu", method="fbo")}
    lane = (times[1_000] - times[1]) / 999
    return Device(times[1] - lane, lane), times


def test_lanes_of_one_program_on_a_gpu():
    device, times = gpu()
    for lanes in (10, 100):
        close(device.round(lanes), times[lanes])
    told = [
        f"{1e6 * device.round(10):.0f}, {1e6 * device.round(100):.0f}",
        f"{1e6 * times[10]:.0f}, {1e6 * times[100]:.0f}",
    ]
    assert not missing(PAGE, " | ".join(told))
    for case in cases("gpu", method="smooth-fbo"):
        close(device.round(case["lanes"]), case["microseconds_per_step"] / 1e6)


def test_lanes_of_one_program_on_two_cores():
    """p and q from 1 and 100 lanes; they are spread over the cores, 16 at a time."""
    part = "throughput over lanes"
    times = {case["lanes"]: case["lanes"] / case["rate"] for case in cases("scaling", part=part)}
    turns = 4  # of 12.5 lanes: 50 lanes a core
    lane = (times[100] / turns - times[1]) / (50 / turns - 1)
    device = Device(times[1] - lane, lane, width=16)
    assert device.round(50) == pytest.approx(times[100])
    for lanes in (10, 1_000):
        close(device.round(lanes / 2), times[lanes])
    predicted, measured = (
        ", ".join(f"{lanes / rounds(lanes):,.0f}" for lanes in (10, 1_000))
        for rounds in (lambda lanes: device.round(lanes / 2), times.__getitem__)
    )
    assert not missing(PAGE, f"{predicted} | {measured}")


def test_the_paper_by_nine_processes_on_one_gpu():
    """k from the run of 162 million steps by nine programs of 36 lanes, 299 s (docs/studies/cartpole-evidence.md).

    Both runs, and p and q on the page, are of the program before passes through networks became single kernels.
    """
    assert not missing("studies/cartpole-evidence.md", "nine programs of 36 lanes", "did 162 million steps in 299 s")
    before, page, steps, programs = 30.0, 11.0, 500_000, 9
    device = Device(launch=110.8e-6, lane=1.249e-6)
    busy = (299 - before - page) / steps / programs - 36 * device.lane
    assert 0 < busy < device.launch  # programs hide some of each other's launches, not all
    (case,) = cases("paper")
    assert not missing(PAGE, f"Device(launch=110.8e-6, lane=1.249e-6, busy={1e6 * busy:.2f}e-6)")
    costs = Costs(device._replace(busy=busy), start=page, block=before)
    layout = Layout(lanes=case["lanes"], rounds=10**6, blocks=9, workers=9, devices=1, cores=16)
    close(seconds(costs, layout), case["seconds_to_page"])
    assert not missing(PAGE, f"{seconds(costs, layout):.0f} s | {case['seconds_to_page']:.0f} s")


def test_workers_of_one_machine():
    for case in cases("workers", part="workers"):
        close(case["predicted"], case["seconds"])
    assert not missing(PAGE, " ".join(workers.table(measure.read("workers"))))


def test_the_formula_by_hand():
    """Seven blocks of 5 lanes, three workers on two devices and four cores: three turns, 1.5 programs on a device."""
    costs = Costs(Device(launch=2.0, lane=0.5, width=4, busy=1.0), start=100.0, block=10.0, measuring=0.25)
    layout = Layout(lanes=35, rounds=8, blocks=7, workers=3, devices=2, cores=4)
    a_round = 2 * max(2 + 0.5 * 2.5, 1.5 * (1 + 0.5 * 2.5))  # two turns of 2.5 lanes
    assert seconds(costs, layout) == pytest.approx(100 + 3 * (10 + 8 * a_round) + 35 * 8 * 0.25)
    slower = costs._replace(all_busy=1.5)
    assert seconds(slower, layout) == seconds(costs, layout)  # one core of four is idle
    assert seconds(slower, layout._replace(cores=3)) == pytest.approx(
        100 + 1.5 * 3 * (10 + 8 * a_round) + 35 * 8 * 0.25
    )
    crowded = layout._replace(workers=7, cores=2)
    a_round = 2 * max(2 + 0.5 * 2.5, 3.5 * (1 + 0.5 * 2.5))
    assert seconds(costs, crowded) == pytest.approx(100 + (10 * 3.5 + 8 * a_round) + 35 * 8 * 0.25)
    assert Device(1.0, 2.0).round(3, programs=2) == 2 * (1 + 2 * 3)  # nothing of a CPU core's round is shared


def test_bytes_are_those_of_the_files(tmp_path):
    layout = Layout(lanes=3, rounds=100, blocks=1, workers=1, devices=1, cores=1)
    state = {"memory": np.zeros((3, 1_000, 12), np.float32), "round": np.zeros(3, np.int32)}
    one = sum(leaf[0].nbytes for leaf in jax.tree.leaves(state))
    said = bytes_of(layout, record=480, state=one, chunks=4)
    kept = checkpoints.Checkpoints(tmp_path)
    for chunk in (1, 2, 3):
        kept.save(chunk, state)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == pytest.approx(said.checkpoints, rel=0.01)
    assert said == (3 * 4 * 480, 2 * 3 * one, 7, 2 * 3 * 4 * 480)
