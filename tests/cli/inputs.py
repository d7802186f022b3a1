"""Writes the inputs of the cases: .npy, .safetensors and .f32, right or wrong on purpose."""
import json
import random
import struct


def numbers(n, seed=1):
    """n floats that are exact in float32."""
    rng = random.Random(seed)
    return [struct.unpack("<f", struct.pack("<f", rng.gauss(0, 1)))[0] for _ in range(n)]


def npy_bytes(payload, descr="<f4", shape=None, fortran=False, version=1, n=None):
    shape = (n,) if shape is None else shape
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    size = 2 if version == 1 else 4
    header += " " * (-(8 + size + len(header) + 1) % 64) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(size, "little") + header.encode() + payload


def write_npy(path, values, **options):
    path.write_bytes(npy_bytes(struct.pack(f"<{len(values)}f", *values), n=len(values), **options))


def read_npy(path):
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:10]
    size = int.from_bytes(data[8:10], "little")
    payload = data[10 + size:]
    assert b"'<f4'" in data[:10 + size], data[:10 + size]
    return list(struct.unpack(f"<{len(payload) // 4}f", payload))


def safetensors_bytes(tensors):
    """tensors: name -> (dtype, shape, payload)."""
    header, payload = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(payload), len(payload) + len(data)]}
        payload += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + payload


def write_safetensors(path, tensors):
    path.write_bytes(safetensors_bytes({name: ("F32", (len(v),), struct.pack(f"<{len(v)}f", *v)) for name, v in tensors.items()}))


def read_safetensors(path):
    """name -> (dtype, shape, payload)."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    body = data[8 + size:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def vnmse(decoded, true):
    return sum((a - b) ** 2 for a, b in zip(decoded, true)) / sum(b * b for b in true)
