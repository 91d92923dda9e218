# ruff: noqa: D103, S101, S108, SIM117, T201  (a job may do as it likes)
"""Threads, executors, asyncio with its pipes, sockets and subprocesses, and a network that is not there."""

import asyncio
import concurrent.futures
import queue
import selectors
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

with concurrent.futures.ThreadPoolExecutor(8) as executor:
    assert sum(executor.map(lambda n: n * n, range(100))) == 328350
pipe: "queue.Queue[int]" = queue.Queue()
thread = threading.Thread(target=lambda: pipe.put(1), daemon=True)
thread.start()
assert pipe.get(timeout=5) == 1
condition = threading.Condition()
with condition:
    condition.wait(0.01)
threading.Timer(0.01, lambda: None).start()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()


async def main() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(10)))
    await loop.run_in_executor(None, time.sleep, 0.01)
    await asyncio.to_thread(time.sleep, 0.01)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print(1)", stdout=asyncio.subprocess.PIPE
    )
    assert (await process.communicate())[0] == b"1\n"
    server = await asyncio.start_unix_server(echo, "/tmp/echo.sock")
    reader, writer = await asyncio.open_unix_connection("/tmp/echo.sock")
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    server.close()


asyncio.run(main())
for selector in (selectors.EpollSelector, selectors.PollSelector, selectors.SelectSelector):
    with selector() as waiting:
        left, right = socket.socketpair()
        waiting.register(left, selectors.EVENT_READ)
        right.send(b"x")
        assert waiting.select(1)
        left.close()
        right.close()

with socket.create_server(("127.0.0.1", 0)) as listener:
    with socket.create_connection(listener.getsockname()) as client:
        peer, _ = listener.accept()
        client.sendall(b"over loopback")
        assert peer.recv(99) == b"over loopback"
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        peer.shutdown(socket.SHUT_RDWR)
        peer.close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
    datagram.bind(("127.0.0.1", 0))
    datagram.sendto(b"x", datagram.getsockname())
    datagram.recvfrom(9)
try:
    socket.create_connection(("192.0.2.1", 80), timeout=0.2)
except OSError as error:
    print("connect:", error)
try:
    urllib.request.urlopen("http://example.invalid/", timeout=1)
except urllib.error.URLError as error:
    print("urlopen:", error)
print(socket.gethostname(), socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)[0][4])
