"""A bad link between two network namespaces, for kernels without tc's netem: frames arrive late, and some never."""
import collections
import contextlib
import ctypes
import fcntl
import os
import random
import select
import struct
import threading
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0002, 0x1000, 0x40000000
LARGEST_FRAME = 65536


def open_tap(namespace, device):
    """Makes the Ethernet device in the namespace; what is sent out of it is read from the descriptor, what is written arrives there."""
    libc = ctypes.CDLL(None, use_errno=True)
    opened = []

    def enter_and_open():  # a thread of its own: a namespace belongs to a thread, and this one ends with it
        fd = None
        try:
            with open(f"/run/netns/{namespace}", "rb") as entry:
                if libc.setns(entry.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns to {namespace}")
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
            opened.append(fd)
        except OSError as error:
            if fd is not None:
                os.close(fd)
            opened.append(error)

    thread = threading.Thread(target=enter_and_open)
    thread.start()
    thread.join()
    if isinstance(opened[0], OSError):
        raise opened[0]
    return opened[0]


class BadLink:
    """Joins `device` of two namespaces from construction to close(). Raises OSError where taps are refused."""

    def __init__(self, namespaces, device, loss, delay, seed=1):
        self.loss, self.delay, self.random = loss, delay, random.Random(seed)
        self.forwarded = self.lost = 0
        self.error = None
        self.taps = []
        try:
            for namespace in namespaces:
                self.taps.append(open_tap(namespace, device))
        except OSError:
            for tap in self.taps:
                os.close(tap)
            raise
        self.ended = False
        self.thread = threading.Thread(target=self.forward, daemon=True)
        self.thread.start()

    def forward(self):
        try:
            self.forward_until_ended()
        except OSError as error:
            self.error = error

    def forward_until_ended(self):
        late = collections.deque()  # (when, to, frame), in order: every frame waits as long
        while not self.ended:
            wait = min(0.1, max(0, late[0][0] - time.monotonic())) if late else 0.1
            for tap in select.select(self.taps, [], [], wait)[0]:
                try:
                    frame = os.read(tap, LARGEST_FRAME)
                except BlockingIOError:
                    continue
                if self.random.random() < self.loss:
                    self.lost += 1
                else:
                    late.append((time.monotonic() + self.delay, self.taps[1 - self.taps.index(tap)], frame))
            while late and late[0][0] <= time.monotonic():
                _, to, frame = late.popleft()
                with contextlib.suppress(OSError):  # full, or not up yet: gone, as on a wire
                    os.write(to, frame)
                    self.forwarded += 1

    def close(self):
        self.ended = True
        self.thread.join()
        for tap in self.taps:
            os.close(tap)
        if self.error is not None:
            raise self.error
