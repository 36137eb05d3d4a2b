"""Work in several processes, a core each, that are forks of this one."""

import json
import os
import sys
import traceback


def in_jobs(number, folder, work):
    """What `work(job)` gives in each of `number` processes, as JSON takes it.

    Args:
        number: How many.
        folder: Where the answers lie in the meantime.
        work: Function of a job's number, from 0.

    Raises:
        RuntimeError: if one of them has failed.
    """
    started = [_start(number, folder / f"job-{job}.json", work, job) for job in range(number)]
    for pid, _ in started:
        os.waitpid(pid, 0)
    if not all(path.exists() for _, path in started):
        raise RuntimeError("every job must end well; see above")
    return [json.loads(path.read_text()) for _, path in started]


def _start(number, path, work, job):
    sys.stderr.flush()
    sys.stdout.flush()
    if pid := os.fork():
        return pid, path
    try:
        if number > 1:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[job % len(cores)]})
        answer = json.dumps(work(job))
        path.write_text(answer)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)
