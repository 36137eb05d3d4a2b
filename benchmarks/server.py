"""What the HTTP server costs beside the runner that it holds.

    python benchmarks/server.py FOLDER FILE [--sentences 200] [--rounds 5]

FOLDER is an exported one that translates, FILE has a sentence a line. One client sends them one
after the other over one connection. Each sentence goes in turn to a `Runner` of this process and
to `keras-transformer-serve` in another; both must answer alike. Of each sentence the least time of
the rounds counts, as others use the machine too. Prints what the two take, their difference, and
the processor time that each used, which tells more on a machine that is busy.
"""

import argparse
import http.client
import itertools
import json
import re
import subprocess
import sys
import time

from reporting import shown, spread

from keras_transformer_runner import Runner
from keras_transformer_runner.lines import read_lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("file")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sentences = [*itertools.islice(read_lines(arguments.file), arguments.sentences)]
    runner = Runner(arguments.folder)
    command = [sys.executable, "-m", "keras_transformer_runner.server", arguments.folder]
    command += ["--source", "en", "--target", "de", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.search(r":(\d+)\n", server.stdout.readline())[1])
            before = _processor_seconds(port)
            rounds = [_round(runner, port, sentences) for _ in range(arguments.rounds)]
            used = _processor_seconds(port) - before
        finally:
            server.terminate()
    own, served = (
        [min(times) for times in zip(*(each[side] for each in rounds), strict=True)]
        for side in (0, 1)
    )
    calls = len(sentences) * arguments.rounds
    more = [b - a for a, b in zip(own, served, strict=True)]
    for name, seconds in (("Runner", own), ("server", served), ("difference", more)):
        print(f"{name}: {shown(spread([1e3 * each for each in seconds]), '.2f')} ms a sentence")
    own_used = sum(each[2] for each in rounds)
    print(f"processor: Runner {1e3 * own_used / calls:.2f}, server {1e3 * used / calls:.2f} ms")


def _processor_seconds(port):
    """What the server has used, as it says itself."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return float(re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)[1])


def _round(runner, port, sentences):
    """The seconds of each sentence here and there, and the processor's of all here."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    own, served, used = [], [], 0.0
    for sentence in sentences:
        start, start_used = time.perf_counter(), time.process_time()
        expected = runner.translate_text(sentence, language="en")
        own.append(time.perf_counter() - start)
        used += time.process_time() - start_used
        start = time.perf_counter()
        fields = json.dumps({"q": sentence, "source": "en", "target": "de"})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/translate", fields, headers)
        answer = json.load(connection.getresponse())["translatedText"]
        served.append(time.perf_counter() - start)
        if answer != expected:
            raise RuntimeError(f"{sentence!r} must be answered alike. Received: {answer!r}")
    connection.close()
    return own, served, used


if __name__ == "__main__":
    main()
