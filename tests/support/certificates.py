"""Certificates for tests of TLS: an authority, and what it has signed, as files."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class Authority:
    """Signs certificates. `file` is what a client must trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._key, self._name = folder, ec.generate_private_key(ec.SECP256R1()), _named(name)
        extension = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self._name, self._key).add_extension(extension, critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def sign(self, name: str, *addresses: str, valid_until: datetime | None = None) -> tuple[Path, Path]:
        """Make a certificate for these host names and addresses; return its file and that of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_address(each) for each in addresses or (name,)])
        certificate = self._builder(_named(name), key, valid_until).add_extension(names, critical=False)
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        files[0].write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid_until: datetime | None = None
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - _DAY,
            not_valid_after=valid_until or now + _DAY,
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
