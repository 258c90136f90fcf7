"""Entry functions of the children of ``test_supervise``."""

import contextlib
import ctypes
import os
import subprocess
import sys
import time

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


def tells(parent):
    for item in parent.job():
        parent.tell("item", value=item)


def echoes(parent):
    for _ in range(3):
        job = parent.job()
        parent.tell("heard")
        parent.answer(job)
    parent.job()


def imports(parent):
    found = {}
    for name in parent.job():
        try:
            found[name] = str(__import__(name))
        except ImportError:
            found[name] = ""
    parent.tell("imported", modules=found)


def reads_input(parent):
    parent.tell("read", input=sys.stdin.read(), job=parent.job())


def exits(parent):
    print("last words", flush=True)
    os._exit(parent.job())


def raises(parent):
    raise ValueError("nobody catches this")


def crashes(parent):
    ctypes.string_at(0)


def hangs(parent):
    parent.job()
    parent.tell("ready")
    while True:
        time.sleep(0.01)  # here


def slow_then_exits(parent):
    parent.job()
    parent.tell("ready")
    time.sleep(0.9)
    parent.tell("slow part is over")
    os.kill(os.getpid(), 9)


def prints(parent):
    """Sends events, and prints the amount of output that the job asks for after each."""
    for count in parent.job():
        parent.tell("printed", count=count)
        print("x" * count, flush=True)


def prints_for_ever(parent):
    while True:
        print("z" * 1_000_000)


def starts_others(parent):
    """Starts a process in its group, a process in its own session and an orphan; then acts as the job asks."""
    job = parent.job()
    there = subprocess.Popen(SLEEP)
    away = subprocess.Popen(SLEEP, start_new_session=True)
    quiet = "stdout=s.DEVNULL, stderr=s.DEVNULL"
    code = f"import subprocess as s; print(s.Popen({SLEEP!r}, start_new_session=True, {quiet}).pid)"
    orphan = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    parent.tell("started", pids=[there.pid, away.pid, int(orphan)])
    if job == "exit":
        os._exit(3)
    if job == "hang":
        time.sleep(300)


def starts_a_child(parent):
    from lpkit_conformance.processes.supervise import Child

    own = Child("entries:hangs")
    own.send({}, 60)
    next(own.events(60))
    parent.tell("started", pid=own.pid)
    time.sleep(300)


def calls_then_hangs(parent):
    from lpkit_conformance.processes import pulse

    parent.job()
    parent.tell("ready")
    for number in range(3):
        pulse.call(f"call {number}")
        time.sleep(0.3)
    pulse.call("last")
    time.sleep(300)


def imports_for_long(parent):
    pause, begun = parent.job(), time.monotonic()
    parent.tell("ready")
    for number in range(4):
        time.sleep(pause)
        with contextlib.suppress(ImportError):
            __import__(f"no_such_module_{number}")
    parent.tell("imported", seconds=time.monotonic() - begun)


def imports_for_ever(parent):
    parent.job()
    parent.tell("ready")
    while True:
        time.sleep(0.01)
        with contextlib.suppress(ImportError):
            import no_such_module  # noqa: F401


def waits_for_a_child(parent):
    from lpkit_conformance.processes.supervise import Child, Lost

    parent.job()
    parent.tell("ready")
    with Child("entries:hangs") as own, contextlib.suppress(Lost):
        own.call({}, 1.5)
    parent.tell("waited")
