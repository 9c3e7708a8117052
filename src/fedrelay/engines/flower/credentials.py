"""Certificates and keys: a development certificate authority, the server's certificate, and the keys of nodes.

With an authority of your own, put its files under the same names. Private files are readable by their owner only, from
the moment they are written.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from fedrelay.errors import SpecError
from fedrelay.files import BINARY, flush_folder, make_folder, read_regular_file, write_atomically

CA, CA_KEY = "ca.pem", "ca.key"
SERVER, SERVER_KEY = "server.pem", "server.key"
REQUESTS, REQUESTS_KEY = "requests.pem", "requests.key"
"""The certificate and the key with which `fedrelay run` signs its requests. A SuperLink does not need them."""

SECRET = "secret"
"""The secret with which `fedrelay run` authenticates at the SuperLink."""

SHORTEST_SECRET = 16
"""Bytes that a secret has at least; a shorter one can be guessed."""

NODES = "nodes"
"""The folder of the nodes' public keys, `NAME.pub`."""

VALID, VALID_AUTHORITY = datetime.timedelta(days=365), datetime.timedelta(days=3650)
"""How long certificates of servers and of authorities are valid."""

_FOR_REQUESTS = x509.UniformResourceIdentifier("urn:fedrelay:requests")
"""The name in a certificate that may sign requests, and in no other."""

SOON = datetime.timedelta(days=30)

_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(handle)
    flush_folder(path.parent)


def make_server_folder(folder: Path, hosts: Sequence[str]) -> None:
    """Create the server's folder: an authority, a certificate for these hosts, a secret, and a folder for keys."""
    _refuse_existing(*(folder / name for name in (CA, CA_KEY, SERVER, SERVER_KEY, REQUESTS, REQUESTS_KEY, SECRET)))
    ours, own, asking = (ec.generate_private_key(ec.SECP384R1()) for _ in range(3))
    root = _named("FedRelay development authority")
    shown = {
        CA: _authority_certificate(root, ours),
        SERVER: _server_certificate([_host(host) for host in hosts], own.public_key(), root, ours),
        REQUESTS: _server_certificate([_FOR_REQUESTS], asking.public_key(), root, ours),
    }
    make_folder(folder / NODES)
    for name, certificate in shown.items():
        write_atomically(folder / name, _signed(certificate, ours))
    for name, key in ((CA_KEY, ours), (SERVER_KEY, own), (REQUESTS_KEY, asking)):
        _write_key(folder / name, key)
    write_private(folder / SECRET, secrets.token_hex(32).encode())


def renew_certificate(folder: Path, more: Sequence[str] = ()) -> datetime.datetime:
    """Give the server new certificates for its keys and hosts, plus `more` hosts. Returns when they expire.

    The authority stays the same, so nodes need no change. A key for requests is made if there is none yet.
    """
    own, root = _first(folder / SERVER), _first(folder / CA)
    content = read(folder / CA_KEY, "the authority's key")
    with _parsing(folder / CA_KEY, "a private key"):
        signer = serialization.load_pem_private_key(content, None)
    if signer.public_key() != root.public_key() or not isinstance(signer, PrivateKey):
        raise SpecError(f"{folder / CA_KEY}: is not the key of {folder / CA}; ask the authority for a certificate")
    hosts, key = list(dict.fromkeys([*hosts_of(own), *more])), own.public_key()
    if not hosts or not isinstance(key, PublicKey):
        raise SpecError(f"{folder / SERVER}: was not made by `fedrelay certificates`")
    end = min(datetime.datetime.now(datetime.UTC) + VALID, root.not_valid_after_utc)
    if not (folder / REQUESTS_KEY).exists():
        _write_key(folder / REQUESTS_KEY, ec.generate_private_key(ec.SECP384R1()))
    names = [_host(host) for host in hosts]
    for file, known_as, of in ((SERVER, names, key), (REQUESTS, [_FOR_REQUESTS], requests_key(folder).public_key())):
        write_atomically(folder / file, _signed(_server_certificate(known_as, of, root.subject, signer, end), signer))
    return end


def requests_key(folder: Path) -> PrivateKey:
    """The key with which the server signs its requests. One that others can read is refused."""
    path = folder / REQUESTS_KEY
    content = read(path, "the key that signs requests", f"make it with: fedrelay certificates {folder} --renew")
    _refuse_readable(path, "key")
    with _parsing(path, "a private key"):
        key = serialization.load_pem_private_key(content, None)
    if not isinstance(key, PrivateKey):
        raise SpecError(f"{path}: an elliptic curve key is needed, as `fedrelay certificates` makes it")
    return key


def requests_certificate(folder: Path) -> str:
    """The certificate of the key that signs requests, as nodes accept it."""
    path = folder / REQUESTS
    content = read(path, "the certificate for requests", f"make it with: fedrelay certificates {folder} --renew")
    try:
        certified = requests_key_of(content, authority(folder / CA))
    except SpecError as error:
        raise SpecError(f"{path}: {error}; make a new one with: fedrelay certificates {folder} --renew") from None
    if certified != requests_key(folder).public_key():
        raise SpecError(f"{path}: is not for {folder / REQUESTS_KEY}; restore the file that belongs to it")
    return content.decode()


def requests_key_of(content: bytes, trusted: bytes) -> PublicKey:
    """The key of a certificate for requests, if an authority has signed it for that.

    Args:
        content: The certificate, as PEM.
        trusted: The certificates of authorities, as PEM.

    Raises:
        SpecError: It is not valid for signing requests.
    """
    found, key = _certificate_for_requests(content, trusted)
    if not found.not_valid_before_utc <= datetime.datetime.now(datetime.UTC) <= found.not_valid_after_utc:
        period = f"{found.not_valid_before_utc:%Y-%m-%d} to {found.not_valid_after_utc:%Y-%m-%d}"
        raise SpecError(f"it is valid from {period}, which is over or has not begun by the clock of this machine")
    return key


def requests_key_at_any_time(content: bytes, trusted: bytes) -> PublicKey:
    """The same for a record of the past, whose certificate may have expired since.

    Raises:
        SpecError: It was never valid for signing requests.
    """
    return _certificate_for_requests(content, trusted)[1]


def requests_key_named(content: bytes) -> PublicKey:
    """The key in a certificate that nobody vouches for.

    Raises:
        SpecError: It is no certificate.
    """
    with _parsing("it", "a certificate"):
        key = x509.load_pem_x509_certificate(content).public_key()
    if not isinstance(key, PublicKey):
        raise SpecError("it is not for signing requests")
    return key


@lru_cache(maxsize=8)  # it comes with every request, and checking it takes milliseconds
def _certificate_for_requests(content: bytes, trusted: bytes) -> tuple[x509.Certificate, PublicKey]:
    """A certificate for requests and its key; everything is checked but the time."""
    with _parsing("it", "a certificate"):
        found = x509.load_pem_x509_certificate(content)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if list(names) != [_FOR_REQUESTS]:
        raise SpecError("it is not for signing requests")
    key, authorities = found.public_key(), x509.load_pem_x509_certificates(trusted)
    if not isinstance(key, PublicKey) or not any(_issued_by(found, each) for each in authorities):
        raise SpecError("no authority in ca.pem has signed it")
    return found, key


def check_server_folder(folder: Path) -> None:
    """Check that the folder has all that a SuperLink needs, and that its certificate is valid."""
    authority(folder / CA)
    read(folder / SERVER_KEY, "the server's key")
    if len(server_secret(folder)) < SHORTEST_SECRET:
        raise SpecError(
            f"{folder / SECRET}: is too short to be a secret; write at least {SHORTEST_SECRET} random characters"
        )
    end = _first(folder / SERVER).not_valid_after_utc
    if end < datetime.datetime.now(datetime.UTC):
        raise SpecError(
            f"{folder / SERVER}: the certificate expired on {end:%Y-%m-%d}; "
            f"make a new one with: fedrelay certificates {folder} --renew"
        )


def server_secret(folder: Path) -> bytes:
    """The server's secret. One that others can read is refused."""
    path = folder / SECRET
    content = read(path, "the secret")
    _refuse_readable(path, "secret")
    return content


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """The host names and addresses of a certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def ends_soon(path: Path) -> str:
    """A warning about a certificate that expires within a month; empty for any other."""
    end = _first(path).not_valid_after_utc
    left = end - datetime.datetime.now(datetime.UTC)
    return "" if left > SOON else f"{path}: the certificate expires on {end:%Y-%m-%d}"


def make_node_key(path: Path) -> Path:
    """Create the private key of a node, and beside it the public key, whose path is returned."""
    if not path.name or path.is_dir():
        raise SpecError(f"FILE: must be the name of a new file, such as hospital-a.key, got {str(path)!r}")
    public = path.with_name(f"{path.name}.pub")
    _refuse_existing(path, public)
    make_folder(path.parent)
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    write_atomically(public, f"{public_text(key.public_key())}\n".encode())
    return public


def private_key(path: Path) -> PrivateKey:
    """The private key of a node. A key that others can read is refused."""
    content = read(path, "the private key")
    if content.startswith(b"ecdsa-sha2-"):
        raise SpecError(f"{path}: is a public key; --key needs the private one, which `fedrelay key` made beside it")
    if b"BEGIN CERTIFICATE" in content:
        raise SpecError(f"{path}: is a certificate; --key needs the private key of this node, made by `fedrelay key`")
    _refuse_readable(path, "key")
    with _parsing(path, "a private key"):
        try:
            key = serialization.load_ssh_private_key(content, None)
        except TypeError:
            raise SpecError(f"{path}: has a password; a node needs a key without one") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SpecError(f"{path}: an elliptic curve key is needed; make one with: fedrelay key {path}")
    return key


def public_keys(folder: Path) -> dict[str, PublicKey]:
    """Name → public key of every node, in the order of names. No key may have two names."""
    found: dict[str, PublicKey] = {}
    for path in sorted((folder / NODES).glob("*.pub")):
        if not _NODE.fullmatch(path.stem):
            raise SpecError(f"{path}: the name of a node may have letters, digits, dots, hyphens and underscores")
        key = parse_public_key(read(path, "the public key"), str(path))
        for name, other in found.items():
            if key == other:
                raise SpecError(f"{path}: has the same key as {name}.pub; every node needs its own")
        found[path.stem] = key
    return found


def parse_public_key(content: bytes, place: str) -> PublicKey:
    """A public key from the text of its `.pub` file; `place` names it in errors."""
    if b"PRIVATE KEY" in content:
        raise SpecError(
            f"{place}: is a private key, which must stay with its owner; ask for the .pub file of a new one"
        )
    with _parsing(place, "a public key"):
        key = serialization.load_ssh_public_key(content)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise SpecError(f"{place}: an elliptic curve key is needed, as `fedrelay key` makes it")
    return key


def public_text(key: PublicKey) -> str:
    """A public key as the text of its `.pub` file."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def authority(path: Path) -> bytes:
    """The certificates of the authority, at least one of which is valid."""
    content = read(path, "the authority's certificate")
    last = max(certificate.not_valid_after_utc for certificate in _certificates(path, content))
    if last < datetime.datetime.now(datetime.UTC):
        raise SpecError(f"{path}: the certificate expired on {last:%Y-%m-%d}; ask the server's owner for a new one")
    return content


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def _write_key(path: Path, key: PrivateKey) -> None:
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _first(path: Path) -> x509.Certificate:
    return _certificates(path, read(path, "the certificate"))[0]


def _certificates(path: Path, content: bytes) -> list[x509.Certificate]:
    if b"PRIVATE KEY" in content:
        raise SpecError(f"{path}: is a private key; a certificate is needed, such as {CA} of the server's folder")
    with _parsing(path, "a certificate"):
        return x509.load_pem_x509_certificates(content)


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise SpecError(f"{path}: already exists and is not replaced")


def _refuse_readable(path: Path, what: str) -> None:
    if path.stat().st_mode & 0o077:
        raise SpecError(f"{path}: others can read this {what}; make it private with: chmod 600 {path}")


def read(path: Path, what: str, advice: str = "") -> bytes:
    """The content of a file."""
    try:
        return read_regular_file(path)
    except OSError as error:
        problem = f"{path}: {what} cannot be read ({error.strerror})"
        raise SpecError(f"{problem}; {advice}" if advice else problem) from None


@contextmanager
def _parsing(path: Path | str, what: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        short = str(error).partition(".")[0].partition("\n")[0] or type(error).__name__
        raise SpecError(f"{path}: cannot be read as {what} ({short})") from None


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            raise SpecError(f"--host: {host!r} is neither a host name nor an address") from None
        return x509.DNSName(host)


def _authority_certificate(root: x509.Name, key: PrivateKey) -> x509.CertificateBuilder:
    allowed = dict.fromkeys(("digital_signature", "key_cert_sign", "crl_sign"), True)
    others = "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"
    usage = x509.KeyUsage(**allowed, **dict.fromkeys((*others, "decipher_only"), False))
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    end = datetime.datetime.now(datetime.UTC) + VALID_AUTHORITY
    builder = _certificate(root, root, key.public_key(), end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    return builder.add_extension(usage, True).add_extension(identifier, False)


def _server_certificate(
    names: Sequence[x509.GeneralName],
    key: PublicKey,
    root: x509.Name,
    signer: PrivateKey,
    end: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    end = end or datetime.datetime.now(datetime.UTC) + VALID
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = _certificate(_named(str(names[0].value)), root, key, end)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), False).add_extension(issuer, False)
    return builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, end: datetime.datetime
) -> x509.CertificateBuilder:
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _signed(builder: x509.CertificateBuilder, key: PrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA384()).public_bytes(Encoding.PEM)
