"""Keys to sign tokens with, and the sets that publish them."""

import base64
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "stepwell"


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Made once per name; making one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(name: str, curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


@cache
def ed_key(name: str) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    """The public key, or a private one as it is, as an entry of a set."""
    public = key.public_key() if hasattr(key, "public_key") else key
    match public:
        case rsa.RSAPublicKey():
            text = RSAAlgorithm.to_jwk(public)
        case ec.EllipticCurvePublicKey():
            text = ECAlgorithm.to_jwk(public)
        case _:
            text = OKPAlgorithm.to_jwk(public)
    entry = {name: value for name, value in json.loads(text).items() if name != "key_ops"}
    return {**entry, **({} if kid is None else {"kid": kid}), **more}


def public_pem(key: Any) -> bytes:
    """What an attacker knows of a key."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def token(
    key: Any,
    expires: float,
    *,
    algorithm: str = "RS256",
    kid: str | None = "one",
    headers: dict[str, Any] | None = None,
    **claims: Any,
) -> str:
    """A token that is right but for what is given; a claim that is None is left out."""
    payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": expires, **claims}
    payload = {name: value for name, value in payload.items() if value is not None}
    more = {**({} if kid is None else {"kid": kid}), **(headers or {})}
    return jwt.encode(payload, key, algorithm=algorithm, headers=more)


def part(value: bytes) -> str:
    """One of the three parts of a token."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def raw_token(key: rsa.RSAPrivateKey, header: dict[str, Any], claims: dict[str, Any]) -> str:
    """An RS256 token with header and claims as they are, also those that no library writes."""
    signed = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{part(signature)}"
