"""Runs a module as this process and ends it when its parent is gone.

`python -m workers.tether workers.engine_worker` is `python -m workers.engine_worker` on a lead: the
parent holds the other end of standard input, and its end of file means that the parent has died,
however it died. On Linux the kernel kills the process as well, which also reaches one that is stuck
in a C extension. Decides nothing else; may import only the standard library, so that it costs
nothing.
"""

import ctypes
import gc
import os
import runpy
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_EXIT_ORPHANED = 1


def _ask_the_kernel() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_at_end_of_input(fd: int) -> None:
    while os.read(fd, 4096):
        pass
    os._exit(_EXIT_ORPHANED)


def hold(fd: int) -> None:
    """Tie this process' life to whoever holds the other end of the pipe `fd`."""
    _ask_the_kernel()
    threading.Thread(target=_end_at_end_of_input, args=(fd,), name="tether", daemon=True).start()


def main() -> None:
    """Run the module named by the first argument with the rest as its arguments.

    Nothing is collected until the module has been imported: see `workers.garbage`.
    """
    gc.disable()  # until workers.process.run
    del sys.argv[0]
    lead = os.dup(0)
    os.set_inheritable(lead, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # what the module starts must not hold, or read, the lead
    os.close(nothing)
    hold(lead)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
