# ruff: noqa: S101, S311, T201  (a job may do as it likes)
"""What most jobs do: start, compute, JSON, text, dates, compression, hashes, random numbers, errors."""

import base64
import bz2
import collections
import csv
import datetime
import decimal
import gzip
import hashlib
import io
import json
import locale
import lzma
import random
import re
import secrets
import statistics
import time
import traceback
import uuid
import zoneinfo

data = {"n": [random.random() for _ in range(1000)], "text": "grüße" * 100}
assert json.loads(json.dumps(data)) == data
raw = json.dumps(data).encode()
for module in (gzip, bz2, lzma):
    assert module.decompress(module.compress(raw)) == raw
print(
    hashlib.sha256(raw).hexdigest(),
    secrets.token_hex(8),
    uuid.uuid4(),
    uuid.uuid1(),
    base64.b64encode(raw[:9]),
)
print(statistics.fmean(data["n"]), decimal.Decimal(1) / 7, collections.Counter("hello").most_common(1))
print(
    re.sub(r"\d+", "#", "a1b22"),
    datetime.datetime.now(zoneinfo.ZoneInfo("Europe/Berlin")),
    time.strftime("%c"),
)
csv.writer(io.StringIO()).writerows([[1, 2], [3, 4]])
locale.setlocale(locale.LC_ALL, "")
time.sleep(0.01)
big = bytearray(200 << 20)
big[:: 1 << 12] = b"x" * len(big[:: 1 << 12])
del big
try:
    raise ValueError("shown in a traceback")
except ValueError:
    traceback.print_exc()
