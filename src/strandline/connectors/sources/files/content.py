"""The content of a text file: decompressed, and in UTF-8, as a stream of bytes in bounded memory.

A plain file in an encoding whose line breaks and quotes are single bytes can be read from any offset: its content is
the file itself, and only what a unit holds is decoded. A compressed file, or one in UTF-16 or UTF-32, can only be read
from its beginning; offsets then count bytes of what comes out, decompressed and in UTF-8.

Bytes that are invalid in the declared encoding become invalid UTF-8 in the same line: that line is rejected and no
other.
"""

from __future__ import annotations

import atexit
import bz2
import codecs
import io
import os
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

import pyarrow as pa

from strandline.core.errors import SourceError

_STEP: Final = 2**18  # bytes per read of a decompressor
_COMPRESSIONS: Final = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}

# Encodings in which a line break, a quote and a comma are the single bytes that they are in ASCII.
_SINGLE_BYTE_BREAKS: Final = frozenset(
    codecs.lookup(name).name
    for name in [
        *("utf-8", "utf-8-sig", "ascii", "latin-1", "koi8-r", "koi8-u", "mac-roman"),
        *(f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
        *(f"cp{number}" for number in (437, 850, 852, 866, 874, 932, 949, *range(1250, 1259))),
        *("shift_jis", "euc_jp", "euc_kr", "gb2312", "gbk", "gb18030", "big5"),
    ]
)
_WIDE: Final = frozenset({"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"})
_MARK: Final = "strandline-mark"
_MARK_WIDE: Final = "strandline-mark-wide"


def _mark(error: UnicodeError) -> tuple[str, int]:
    """A lone surrogate for an invalid byte; the next one is decoded again, as it may be a line break."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.start + 1


def _mark_wide(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


codecs.register_error(_MARK, _mark)
codecs.register_error(_MARK_WIDE, _mark_wide)


class DamagedContent(Exception):
    """Compressed content that cannot be decompressed further. `rest_only`: the content before is intact."""

    def __init__(self, reason: str, *, rest_only: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rest_only = rest_only


def compression_of(path: str, option: str | None) -> str | None:
    """Compression of a file, by the option, else by its name."""
    if option is not None:
        return None if option == "none" else option
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def without_compression(path: str) -> str:
    """The name that a file has when it is decompressed."""
    stem, suffix = os.path.splitext(path)
    return stem if suffix.lower() in _COMPRESSIONS else path


def known_encoding(name: str) -> str | None:
    """Python's name of an encoding; None if it is not supported for files."""
    try:
        encoding = codecs.lookup(name).name
    except LookupError:
        return None
    return encoding if encoding in _SINGLE_BYTE_BREAKS or encoding in _WIDE else None


@dataclass(frozen=True, slots=True)
class FileFormat:
    """Physical format of the content of a file."""

    compression: str | None = None
    encoding: str = "utf-8"
    skips: int = 0  # bytes of a byte order mark

    @property
    def seekable(self) -> bool:
        """True if content can be read from the middle of the file."""
        return self.compression is None and self.encoding not in _WIDE

    def decode(self, data: bytes) -> bytes:
        """Content in UTF-8, which that of a file without seeking is already."""
        if not self.seekable or self.encoding in ("utf-8", "ascii"):
            return data
        return data.decode(self.encoding, _MARK).encode("utf-8", "surrogatepass")


def form_of(path: str, compression: str | None, encoding: str | None) -> FileFormat:
    """Physical format of a file; a byte order mark decides where nothing is declared."""
    with open(path, "rb") as file:
        start = file.read(4)
        if compression is not None:
            file.seek(0)
            try:
                start = _decompressed(file, compression).read(4)
            except DamagedContent:
                start = b""
    if encoding in (None, "utf-8", "utf-8-sig", "utf-16", "utf-32"):
        marks = (
            (codecs.BOM_UTF8, "utf-8"),
            (codecs.BOM_UTF32_LE, "utf-32-le"),
            (codecs.BOM_UTF32_BE, "utf-32-be"),
            (codecs.BOM_UTF16_LE, "utf-16-le"),
            (codecs.BOM_UTF16_BE, "utf-16-be"),
        )
        for mark, marked in marks:
            if start.startswith(mark) and (encoding is None or marked.startswith(encoding.removesuffix("-sig"))):
                return FileFormat(compression, marked, len(mark))
    default = {None: "utf-8", "utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
    return FileFormat(compression, default.get(encoding, encoding or "utf-8"))


# Streams


class ByteStream(Protocol):
    """Content from some offset on. `read` gives at least a byte and at most the requested number, none at the end."""

    def read(self, size: int, /) -> bytes: ...


class _Decompressed:
    """Decompressed gzip or bz2 content, member by member."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._file, self._compression = file, compression
        self._members = 0
        self._unused = b""
        self._at_end = False
        self._begin()

    def _begin(self) -> None:
        self._fresh = True  # nothing of the member has been seen
        self._zlib = zlib.decompressobj(wbits=31) if self._compression == "gzip" else None
        self._bz2 = bz2.BZ2Decompressor() if self._compression == "bz2" else None

    def read(self, size: int, /) -> bytes:
        size = min(size, _STEP)
        while not self._at_end:
            if not self._unused and (self._bz2 is None or self._bz2.needs_input):
                self._unused = self._file.read(_STEP)
                if not self._unused:
                    return self._last(size)
            if data := self._step(size):
                return data
        return b""

    def _last(self, size: int) -> bytes:
        """The rest in the decompressor at the end of the file."""
        if not self._fresh and (data := self._step(size)):
            return data
        self._at_end = True
        if not self._fresh:
            raise DamagedContent(f"the {self._compression} stream is truncated", rest_only=True)
        return b""

    def _step(self, size: int) -> bytes:
        if self._fresh and self._members and not self._unused.strip(b"\0"):
            self._unused = b""  # padding after the last member
            return b""
        try:
            if self._zlib is not None:
                data = self._zlib.decompress(self._unused, size)
                ended, self._unused = self._zlib.eof, self._zlib.unused_data or self._zlib.unconsumed_tail
            else:
                assert self._bz2 is not None
                data = self._bz2.decompress(self._unused, size)
                ended, self._unused = self._bz2.eof, self._bz2.unused_data
        except (zlib.error, OSError, ValueError) as error:
            self._at_end = True
            if self._fresh and self._members:
                raise DamagedContent(f"trailing data after the {self._compression} content", rest_only=True) from None
            raise DamagedContent(f"the {self._compression} stream is damaged: {error}", rest_only=False) from None
        self._fresh = False
        if ended:
            self._members += 1
            self._begin()
        return data


class _Zstandard:
    """Decompressed zstd content. The library drops the output of a failing call: the end is read in ever smaller
    steps."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._step = _STEP
        self._reached = 0
        self._open()

    def _open(self) -> None:
        raw = io.FileIO(self._file.fileno(), closefd=False)  # the library closes what it has read
        raw.seek(0)
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def read(self, size: int, /) -> bytes:
        while True:
            try:
                data = bytes(self._stream.read(min(size, self._step)))
            except (OSError, pa.ArrowException) as error:
                if self._step == 1:
                    cut = "Truncated" in str(error)
                    garbage = "frame descriptor" in str(error) and self._reached > 0
                    reason = "the zstd stream is truncated" if cut else f"the zstd stream is damaged: {error}"
                    if garbage:
                        reason = "trailing data after the zstd content"
                    raise DamagedContent(reason, rest_only=cut or garbage) from None
                self._step = max(1, self._step >> 6)
                self._open()
                _skip(self._stream, self._reached)
                continue
            self._reached += len(data)
            return data


def _skip(stream: ByteStream, count: int) -> None:
    while count > 0:
        data = stream.read(min(count, _STEP))
        if not data:
            return
        count -= len(data)


def _decompressed(file: BinaryIO, compression: str | None) -> ByteStream:
    match compression:
        case None:
            return file
        case "zstd":
            return _Zstandard(file)
    return _Decompressed(file, compression)


class _Transcoded:
    """UTF-16 or UTF-32 as UTF-8."""

    def __init__(self, stream: ByteStream, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(_MARK_WIDE)
        self._ready = b""
        self._at_end = False

    def read(self, size: int, /) -> bytes:
        while not self._ready and not self._at_end:
            raw = self._stream.read(_STEP)
            self._at_end = not raw
            self._ready = self._decoder.decode(raw, final=not raw).encode("utf-8", "surrogatepass")
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


def open_content(file: BinaryIO, form: FileFormat, offset: int) -> ByteStream:
    if form.seekable:
        file.seek(max(offset, form.skips))
        return file
    file.seek(0)
    stream = _decompressed(file, form.compression)
    _skip(stream, form.skips)
    if form.encoding in _WIDE:
        stream = _Transcoded(stream, form.encoding)
    _skip(stream, offset)
    return stream


# Sequential content continues where the unit before it stopped, if that was in this process.
_open_streams: OrderedDict[tuple[object, ...], tuple[BinaryIO, ByteStream]] = OrderedDict()
_MOST_STREAMS: Final = 4


@atexit.register
def close_streams() -> None:
    while _open_streams:
        _open_streams.popitem()[1][0].close()


def read_range(path: str, form: FileFormat, begin: int, end: int) -> bytes:
    """Content between two offsets, of the file or of the decompressor; less if there is less."""
    status = os.stat(path)
    version = (path, form, status.st_ino, status.st_size, status.st_mtime_ns)
    if form.seekable:
        with open(path, "rb") as file:
            file.seek(begin)
            return file.read(end - begin)
    file, stream = _open_streams.pop((*version, begin), (None, None))  # type: ignore[assignment]
    if stream is None:
        file = open(path, "rb")  # noqa: SIM115 - it stays open for the next unit
        stream = open_content(file, form, begin)
    parts, left = io.BytesIO(), end - begin
    try:
        while left > 0 and (data := stream.read(left)):
            parts.write(data)
            left -= len(data)
    except DamagedContent:
        pass  # the checksum of the unit decides
    _open_streams[(*version, end)] = (file, stream)
    while len(_open_streams) > _MOST_STREAMS:
        _open_streams.popitem(last=False)[1][0].close()
    return parts.getvalue()


# What is kept of it


_WHOLE_BYTES: Final = 2**20
_EDGE_BYTES: Final = 2**16


def fingerprint(path: str, end: int) -> int | None:
    """A checksum over what a file has before an offset: all of it up to 1 MiB, else its first and last 64 KiB; None if
    the file is shorter or cannot be read."""
    try:
        with open(path, "rb") as file:
            if end <= _WHOLE_BYTES:
                data = file.read(end)
                return zlib.crc32(data) if len(data) == end else None
            checksum = zlib.crc32(file.read(_EDGE_BYTES))
            file.seek(end - _EDGE_BYTES)
            data = file.read(_EDGE_BYTES)
            return zlib.crc32(data, checksum) if len(data) == _EDGE_BYTES else None
    except OSError:
        return None


def file_changed(path: str) -> SourceError:
    return SourceError(
        f"{path} has changed since it was found",
        code="file-changed",
        hint="Restore the file and start again: a replayed batch must read the same content. "
        "Write new content to a new file, or append to this one.",
    )
