"""The digest of what a request means, as docs/digest.md describes it. Standard library only; Python 3.9 and later."""

import hashlib
import re

VERSION = "orbit.digest.v1"
MAX_DEPTH = 100
MAX_DIGITS = 1000


class Refusal(ValueError):
    """A body that Orbit refuses. Its code is one of the codes in docs/digest.md."""

    def __init__(self, code, position):
        super().__init__(f"{code} at character {position}")
        self.code = code
        self.position = position


def digest(operation, path, body, omit=None):
    """The digest of a request, as 64 hexadecimal digits.

    operation is the operationId; path has its ids filled in and no query; body is bytes, or None if the request has
    none; omit names a member of the outermost object that the digest leaves out. Raises Refusal.
    """
    array = [_encode_text(text) for text in (VERSION, operation, path)]
    if body is not None:
        array.append(canonical(body, omit))
    return hashlib.sha256(b"[" + b"".join(array) + b"]").hexdigest()


def canonical(body, omit=None):
    """The canonical encoding of one JSON text, given as bytes. Raises Refusal."""
    if body.startswith(b"\xef\xbb\xbf"):
        raise Refusal("byte_order_mark", 0)
    # Bytes that are not UTF-8 become lone surrogates, which no other bytes become: outside a string they match nothing.
    text = body.decode("utf-8", "surrogateescape")
    value, end = _value(text, _skip(text, 0), 1)
    end = _skip(text, end)
    if end != len(text):
        raise Refusal("invalid_json", end)
    if isinstance(value, dict):
        value.pop(omit, None)
    return _encode(value)


_SPACE = re.compile(r"[ \t\n\r]*")
_WORDS = {"true": True, "false": False, "null": None}
_WORD = re.compile("|".join(_WORDS))
_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
_ESCAPE = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u(.{4})|\\(.)", re.DOTALL)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Number(str):
    """The encoding of a number."""


def _skip(text, at):
    return _SPACE.match(text, at).end()


def _value(text, at, level):
    """Reads the value that begins at `at`; level is that of a container here. Gives it and the place after it."""
    first = text[at : at + 1]
    if first in ("{", "[") and level > MAX_DEPTH:
        raise Refusal("too_deep", at)
    if first == "{":
        return _object(text, at + 1, level)
    if first == "[":
        return _array(text, at + 1, level)
    if first == '"':
        return _text(text, at)
    word = _WORD.match(text, at)
    if word:
        return _WORDS[word.group()], word.end()
    return _number(text, at)


def _array(text, at, level):
    values = []
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return values, at + 1
    while True:
        value, at = _value(text, _skip(text, at), level + 1)
        values.append(value)
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "]":
            return values, at + 1
        if mark != ",":
            raise Refusal("invalid_json", at)
        at += 1


def _object(text, at, level):
    members = {}
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        at = _skip(text, at)
        start = at
        name, at = _text(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise Refusal("invalid_json", at)
        value, at = _value(text, _skip(text, at + 1), level + 1)
        if name in members:
            raise Refusal("duplicate_key", start)
        members[name] = value
        at = _skip(text, at)
        mark = text[at : at + 1]
        if mark == "}":
            return members, at + 1
        if mark != ",":
            raise Refusal("invalid_json", at)
        at += 1


def _text(text, at):
    match = _STRING.match(text, at)
    if not match:
        raise Refusal("invalid_json", at)
    written = match.group(1)
    if any("\ud800" <= c <= "\udfff" for c in written):
        raise Refusal("invalid_utf8", at)
    resolved = _ESCAPE.sub(_resolve, written)
    if any("\ud800" <= c <= "\udfff" for c in resolved):
        raise Refusal("lone_surrogate", at)
    return resolved, match.end()


def _resolve(match):
    high, low, unit, short = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if unit:
        return chr(int(unit, 16))
    return _SHORT.get(short, short)


def _number(text, at):
    match = _NUMBER.match(text, at)
    if not match:
        raise Refusal("invalid_json", at)
    minus, integer, fraction, exponent = match.group(1), match.group(2), match.group(3) or "", match.group(4) or "0"
    if sum(c.isdigit() for c in match.group()) > MAX_DIGITS:
        raise Refusal("number_too_long", at)
    power = int(exponent) - len(fraction)
    value = int(integer + fraction)
    if value == 0:
        if power > 308:
            raise Refusal("number_out_of_range", at)
        return _Number("d0e0;"), match.end()
    largest = value == 17976931348623157 and power == 292
    # value · 10^power < limit, without raising ten to a power that may be huge
    too_large = power > 308 or power >= -MAX_DIGITS and not _below_limit(value, power)
    if too_large and not largest or not _below_limit(int(integer), 0):
        raise Refusal("number_out_of_range", at)
    digits = str(value)
    stripped = digits.rstrip("0")
    return _Number(f"d{minus}{stripped}e{power + len(digits) - len(stripped)};"), match.end()


def _below_limit(value, power):
    if power < 0:
        return value < 17976931348623 * 10 ** (295 - power)
    return value * 10**power < 17976931348623 * 10**295


def _encode(value):
    if value is None:
        return b"n"
    if value is True:
        return b"t"
    if value is False:
        return b"f"
    if isinstance(value, _Number):
        return value.encode()
    if isinstance(value, str):
        return _encode_text(value)
    if isinstance(value, list):
        return b"[" + b"".join(map(_encode, value)) + b"]"
    names = sorted(value, key=str.encode)
    return b"{" + b"".join(_encode_text(name) + _encode(value[name]) for name in names) + b"}"


def _encode_text(text):
    raw = text.encode()
    return b"s%d:%s" % (len(raw), raw)
