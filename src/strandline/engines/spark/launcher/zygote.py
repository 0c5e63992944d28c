"""Zygote: a process that has imported what a planning process needs, and forks one for each request of Spark.

For every streaming source Spark starts `python -m pyspark.sql.streaming.python_streaming_source_runner`, a fresh
interpreter that imports PySpark and Arrow first: 0.35 s of every start of a query. Spark lets us choose the
interpreter, so our session names a shell script (`interpreter`). For that one module the script runs this file as a
caller, which is up in 20 ms, hands the request to the zygote and waits for the child to end. Otherwise, and where no
zygote responds, the script is plain Python.

The caller runs without site-packages: nothing at the top of this file may import more than a few standard modules.
"""

from __future__ import annotations

import json
import os
import socket
import sys

PLANNING = "pyspark.sql.streaming.python_streaming_source_runner"


def interpreter(directory: str, python: str) -> str:
    """Write the script that Spark uses as its Python interpreter; returns its path."""
    from shlex import quote

    path = os.path.join(directory, "python")
    caller = " ".join(map(quote, (python, "-IS", os.path.abspath(__file__), address(directory), python)))
    script = f"""#!/bin/sh
case "$*" in
  "-m {PLANNING}") exec {caller} ;;
  *) exec {quote(python)} -P "$@" ;;
esac
"""
    with open(path, "w") as file:
        file.write(script)
    os.chmod(path, 0o700)
    return path


def address(directory: str) -> str:
    return os.path.join(directory, "zygote")


def call(where: str, python: str) -> None:
    """Let the zygote fork a planning process, and wait for its end; without a zygote become one."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(where)
        except OSError:
            os.execv(python, [python, "-P", "-m", PLANNING])
        connection.sendall(json.dumps(dict(os.environ)).encode() + b"\n")
        connection.recv(1)


def serve(where: str) -> None:
    """Import, then fork until our parent closes our standard input, be it by dying."""
    import gc
    import select
    import signal
    from importlib import import_module

    runner = import_module(PLANNING)
    import_module("strandline.engines.spark.source")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(where)
        listener.listen()
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                with connection.makefile() as request:
                    os.environ.update(json.loads(request.readline()))
                with runner.get_sock_file_to_executor(timeout=None) as file:
                    runner.main(file, file)
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        call(sys.argv[1], sys.argv[2])
