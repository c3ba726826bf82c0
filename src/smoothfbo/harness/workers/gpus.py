"""Several processes on one GPU. No jax here: the driver must not take the GPU's memory from its workers."""

import importlib.metadata
import os
import shutil
import subprocess
from pathlib import Path

MEMORY = 0.9  # of a GPU, for all its blocks together


def visible() -> list[str]:
    """The NVIDIA GPUs that jax may use here, as CUDA_VISIBLE_DEVICES names them."""
    has_plugin = any("cuda" in plugin.name for plugin in importlib.metadata.entry_points(group="jax_plugins"))
    if not has_plugin or os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name not in ("", "-1", "NoDevFiles")]
    found = sorted(Path("/dev").glob("nvidia[0-9]*"), key=lambda path: int(path.name.removeprefix("nvidia")))
    return [str(index) for index in range(len(found))]


def models() -> list[str]:
    """What the driver calls the GPUs of this machine, each kind once; none where it cannot be asked."""
    try:
        call = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        done = subprocess.run(call, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return list(dict.fromkeys(line.strip() for line in done.stdout.splitlines() if line.strip()))


def environment(gpu: str | None, shared: int) -> dict[str, str]:
    """What a process sees that has a GPU together with others; None: the GPU is set already."""
    limits = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{MEMORY / shared:.4f}"}
    return limits if gpu is None else limits | {"CUDA_VISIBLE_DEVICES": gpu}


def start_mps() -> str:
    """Start NVIDIA's multi-process service, without which processes take turns on a GPU; a sentence that says so."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return "Blocks take turns on a GPU: NVIDIA MPS (nvidia-cuda-mps-control) is not installed."
    if _succeeds([control], "get_server_list\n"):
        return "Blocks share a GPU through NVIDIA MPS, which was running."
    if _succeeds([control, "-d"]):
        return f"Blocks share a GPU through NVIDIA MPS, started now (to end it: echo quit | {control})."
    return "Blocks take turns on a GPU: NVIDIA MPS could not be started."


def _succeeds(command: list[str], given: str = "") -> bool:
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and "Cannot find MPS" not in done.stdout + done.stderr
