"""A program at a terminal of its own: what a person types, what the screen shows. Skips where the system has no ptys (a chroot without /dev/pts)."""
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from run_cli_tests import Skip

CTRL_C, CTRL_D, CTRL_A, CTRL_E, CTRL_U = b"\x03", b"\x04", b"\x01", b"\x05", b"\x15"
UP, LEFT, BACKSPACE = b"\x1b[A", b"\x1b[D", b"\x7f"
WAIT = 60  # seconds; nothing is asserted about how long anything takes


def open_pty():
    """The ends of a new terminal: that of the screen, that of the program."""
    try:
        return pty.openpty()
    except OSError as error:
        raise Skip(f"no terminal can be made here: {error}") from error


def own_terminal():
    """In the child: standard input becomes the terminal that Ctrl-C comes from."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """stdin and stderr are the terminal, stdout too unless it is given. A context manager: leaving it kills what still runs."""

    def __init__(self, args, cwd, stdout=None, columns=80, env=None):
        self.screen, program_end = open_pty()
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "HOME": str(cwd), **(env or {})}
        self.process = subprocess.Popen([str(a) for a in args], stdin=program_end, stderr=program_end, stdout=stdout or program_end, cwd=cwd,
                                        env=environment, preexec_fn=own_terminal)
        os.close(program_end)
        self.text = ""  # all that was shown
        self.at = 0     # up to where expect() has looked
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.screen)

    def send(self, data):
        """Types; what a terminal takes at once is little, so what the program shows meanwhile is read."""
        data = data if isinstance(data, bytes) else data.encode()
        while data:
            readable, writable, _ = select.select([self.screen], [self.screen], [], WAIT)
            assert readable or writable, "the terminal takes nothing"
            if readable:
                self._read()
            if writable:
                data = data[os.write(self.screen, data[:256]):]

    def _read(self):
        try:
            part = os.read(self.screen, 65536)
        except OSError as error:  # the program has ended
            assert error.errno == errno.EIO, error
            part = b""
        whole = self.rest + part
        self.text += whole.decode("utf-8", "replace")
        self.rest = b""
        return bool(part)

    def expect(self, pattern):
        """Waits until the screen shows the pattern behind what was found before; returns the match."""
        end = time.monotonic() + WAIT
        while True:
            found = re.compile(pattern, re.S).search(self.text, self.at)
            if found:
                self.at = found.end()
                return found
            left = end - time.monotonic()
            assert left > 0 and select.select([self.screen], [], [], left)[0] and self._read(), \
                f"the screen lacks {pattern!r} in {self.text[self.at:][-2000:]!r}, exit {self.process.poll()}"

    def end(self):
        """Waits for the program's end; the exit code, 128 + the signal's number where one ended it."""
        while select.select([self.screen], [], [], WAIT)[0] and self._read():
            pass
        code = self.process.wait(timeout=WAIT)
        usual = termios.ICANON | termios.ECHO | termios.ISIG
        assert termios.tcgetattr(self.screen)[3] & usual == usual, "the terminal was left as nobody can use it"
        return code if code >= 0 else 128 - code

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)
