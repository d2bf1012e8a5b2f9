"""A server of a campaign's own: on SQLite, with tokens, in a folder that its campaign removes."""

import http.client
import json
import os
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def program():
    """BACKSTOP if it is set, else a release build."""
    given = os.environ.get("BACKSTOP")
    if given:
        return os.path.abspath(given)
    command = ["cargo", "build", "--quiet", "--locked", "--release", "-p", "backstop-cli"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "backstop")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`tokens` are scopes by name; without any the server is open."""

    def __init__(self, backstop, folder, tokens):
        self.backstop, self.port = backstop, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = os.path.join(folder, "backstop.toml")
        origins = f'origins = ["{self.url}"]\n' if tokens else ""
        with open(self.config, "w") as config:
            config.write(
                f'[store]\nurl = "sqlite:{folder}/backstop.db"\n'
                f'[server]\nlisten = "127.0.0.1:{self.port}"\n{origins}'
            )
        # A server that wants tokens does not start without one.
        self.tokens = {name: self.token(name, scopes) for name, scopes in tokens.items()}
        self.log = os.path.join(folder, "log")
        with open(self.log, "w") as log:
            command = [backstop, "serve", "--config", self.config]
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        self.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def token(self, name, scopes):
        wanted = [word for scope in scopes for word in ("--scope", scope)]
        command = [self.backstop, "token", "create", "--config", self.config, "--name", name]
        made = subprocess.run([*command, *wanted, "--json"], capture_output=True, text=True, check=True)
        return json.loads(made.stdout)["token"]

    def wait(self):
        for _ in range(200):
            if self.process.poll() is not None:
                break
            try:
                self.ask(None, "GET", "/healthz")
                return
            except OSError:
                time.sleep(0.1)
        with open(self.log) as log:
            raise SystemExit(f"the server did not start: {log.read()}")

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, token, method, path, body=None, connection=None):
        connection = connection or self.connection()
        head = {"Content-Type": "application/json"}
        if token:
            head["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body, head)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def memory_mb(self):
        """The most it ever had."""
        with open(f"/proc/{self.process.pid}/status") as status:
            peak = next(line for line in status if line.startswith("VmHWM"))
        return int(peak.split()[1]) // 1024
