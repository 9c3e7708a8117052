"""Certificates and keys: what is private stays so, and nothing is replaced."""

from __future__ import annotations

import datetime
import os
import ssl
from pathlib import Path

import pytest

from fedrelay.errors import SpecError

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from cryptography import x509

from fedrelay.engines.flower import credentials
from fedrelay.engines.flower.credentials import (
    make_node_key,
    make_server_folder,
    private_key,
    public_keys,
)


def mode(path):
    return path.stat().st_mode & 0o777


def test_the_servers_folder(tmp_path):
    before = os.umask(0)  # however careless the caller's own settings are
    try:
        make_server_folder(tmp_path / "server", ["relay.example.org", "10.0.0.5"])
    finally:
        os.umask(before)
    private = ("ca.key", "server.key", "requests.key", "secret")
    assert {name: mode(tmp_path / "server" / name) for name in private} == dict.fromkeys(private, 0o600)
    context = ssl.create_default_context(cafile=tmp_path / "server" / "ca.pem")
    context.load_cert_chain(tmp_path / "server" / "server.pem", tmp_path / "server" / "server.key")
    certificate = x509.load_pem_x509_certificate((tmp_path / "server" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["relay.example.org", "10.0.0.5"]
    secret = (tmp_path / "server" / "secret").read_bytes()
    with pytest.raises(SpecError, match="already exists and is not replaced"):
        make_server_folder(tmp_path / "server", ["localhost"])
    assert (tmp_path / "server" / "secret").read_bytes() == secret


def test_keys_of_nodes(tmp_path):
    make_server_folder(tmp_path / "server", ["localhost"])
    for name in ("b", "a"):
        public = make_node_key(tmp_path / f"{name}.key")
        assert mode(tmp_path / f"{name}.key") == 0o600
        public.rename(tmp_path / "server" / "nodes" / f"{name}.pub")
    keys = public_keys(tmp_path / "server")
    assert list(keys) == ["a", "b"]
    assert private_key(tmp_path / "a.key").public_key().public_numbers() == keys["a"].public_numbers()


def test_keys_that_are_not_accepted(tmp_path):
    make_node_key(tmp_path / "a.key").rename(tmp_path / "kept.pub")
    with pytest.raises(SpecError, match="already exists"):
        make_node_key(tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o640)
    with pytest.raises(SpecError, match="others can read this key; make it private with: chmod 600"):
        private_key(tmp_path / "a.key")
    (tmp_path / "b.key").write_text("no key")
    (tmp_path / "b.key").chmod(0o600)
    with pytest.raises(SpecError, match="cannot be read as a private key"):
        private_key(tmp_path / "b.key")
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "a b.pub").write_bytes((tmp_path / "kept.pub").read_bytes())
    with pytest.raises(SpecError, match="the name of a node may have letters"):
        public_keys(tmp_path)
    (tmp_path / "nodes" / "a b.pub").unlink()
    (tmp_path / "nodes" / "a.pub").write_text("no key")
    with pytest.raises(SpecError, match="cannot be read as a public key"):
        public_keys(tmp_path)


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.mark.parametrize("name", ["", "/", "."])
def test_a_key_needs_a_file_name(name):
    with pytest.raises(SpecError, match="FILE: must be the name of a new file"):
        make_node_key(Path(name))


def test_a_renewed_certificate_is_for_the_same_key_and_of_the_same_authority(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "VALID", datetime.timedelta(days=20))
    make_server_folder(tmp_path, ["relay.example.org", "10.0.0.5"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert credentials.ends_soon(tmp_path / "server.pem").startswith(
        f"{tmp_path / 'server.pem'}: the certificate expires on"
    )
    assert credentials.ends_soon(tmp_path / "ca.pem") == ""
    monkeypatch.undo()
    end = credentials.renew_certificate(tmp_path, ["relay.example.com"])
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert {name for name in after if after[name] != before.get(name)} == {"server.pem", "requests.pem"}
    renewed = certificate(tmp_path / "server.pem")
    assert renewed.not_valid_after_utc == end.replace(microsecond=0)
    assert credentials.ends_soon(tmp_path / "server.pem") == ""
    assert credentials.hosts_of(renewed) == ["relay.example.org", "10.0.0.5", "relay.example.com"]
    renewed.verify_directly_issued_by(certificate(tmp_path / "ca.pem"))
    ssl.create_default_context().load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")


def test_a_superlink_does_not_start_with_a_certificate_that_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "VALID", datetime.timedelta(minutes=-1))
    make_server_folder(tmp_path, ["localhost"])
    with pytest.raises(SpecError, match=r"server\.pem: the certificate expired on .* certificates .* --renew"):
        credentials.check_server_folder(tmp_path)
    monkeypatch.undo()
    credentials.renew_certificate(tmp_path)
    credentials.check_server_folder(tmp_path)
    (tmp_path / "secret").write_text("guess me")
    with pytest.raises(SpecError, match="is too short to be a secret; write at least 16 random characters"):
        credentials.check_server_folder(tmp_path)
    (tmp_path / "secret").chmod(0o640)
    with pytest.raises(SpecError, match=r"others can read this secret; make it private with: chmod 600 .*secret"):
        credentials.check_server_folder(tmp_path)
    (tmp_path / "secret").unlink()
    with pytest.raises(SpecError, match="the secret cannot be read"):
        credentials.check_server_folder(tmp_path)


def test_only_the_authority_that_signed_a_certificate_can_renew_it(tmp_path):
    for name in ("ours", "theirs"):
        make_server_folder(tmp_path / name, ["localhost"])
    (tmp_path / "ours" / "ca.key").write_bytes((tmp_path / "theirs" / "ca.key").read_bytes())
    with pytest.raises(SpecError, match=r"ca\.key: is not the key of .*ca\.pem; ask the authority"):
        credentials.renew_certificate(tmp_path / "ours")
    (tmp_path / "ours" / "ca.key").write_text("no key")
    with pytest.raises(SpecError, match="cannot be read as a private key"):
        credentials.renew_certificate(tmp_path / "ours")
    (tmp_path / "ours" / "ca.key").unlink()
    with pytest.raises(SpecError, match="the authority's key cannot be read"):
        credentials.renew_certificate(tmp_path / "ours")
    with pytest.raises(SpecError, match="the certificate cannot be read"):
        credentials.renew_certificate(tmp_path / "nowhere")


def test_a_key_with_a_password_is_refused(tmp_path, monkeypatch):
    def locked(content, password):
        raise TypeError("Key is password-protected, but password not provided.")

    make_node_key(tmp_path / "a.key")
    monkeypatch.setattr(credentials.serialization, "load_ssh_private_key", locked)
    with pytest.raises(SpecError, match="has a password"):
        private_key(tmp_path / "a.key")


def test_a_private_key_among_the_public_ones_is_said_to_be_one(tmp_path):
    (tmp_path / "nodes").mkdir()
    make_node_key(tmp_path / "a.key")
    (tmp_path / "a.key").rename(tmp_path / "nodes" / "a.pub")
    with pytest.raises(SpecError, match="is a private key, which must stay with its owner"):
        public_keys(tmp_path)


def test_no_key_has_two_names(tmp_path):
    make_server_folder(tmp_path, ["localhost"])
    public = make_node_key(tmp_path / "a.key").read_bytes()
    for name in ("a", "b"):
        (tmp_path / "nodes" / f"{name}.pub").write_bytes(public)
    with pytest.raises(SpecError, match=r"b\.pub: has the same key as a\.pub"):
        public_keys(tmp_path)
