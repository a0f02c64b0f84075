"""Be an engine's process: `PYTHON -m bench.engine_peers NAME TASK`; bench/engine.py starts it."""

import argparse
import importlib
import sys
from pathlib import Path

from bench.engine_peers.base import Task, serve, take_standard_output

#: The module of each engine, and what its `load` is told beside the task.
MODES = {
    "docmill": ("docmill_engine", ""),
    "vllm_eager": ("vllm_engine", "eager"),
    "vllm_compiled": ("vllm_engine", "compiled"),
    "openvino": ("openvino_engine", ""),
    "llama_cpp_bf16": ("llama_cpp_engine", "bf16"),
    "llama_cpp_q8_0": ("llama_cpp_engine", "q8_0"),
    "generate_batch": ("transformers_engine", "generate_batch"),
    "generate_sorted_8": ("transformers_engine", "sorted_8"),
    "generate_one_by_one": ("transformers_engine", "one_by_one"),
    "generate_as_they_come_8": ("transformers_engine", "as_they_come_8"),
}


def main() -> None:
    """Load the engine, and only the library that it needs, and answer what is ordered."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine_peers")
    parser.add_argument("name", choices=MODES)
    parser.add_argument("task", type=Path)
    options = parser.parse_args()
    reports = take_standard_output()
    task = Task.read(options.task)
    module, mode = MODES[options.name]
    engine = importlib.import_module(f"bench.engine_peers.{module}").load(task, mode)
    serve(engine, task, sys.stdin, reports)


if __name__ == "__main__":
    main()
