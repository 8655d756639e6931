"""Which variables of an environment hold secrets, by their names."""

import re
from functools import cache

_SECRET_NAME = re.compile(
    r"""
    .*(_|^)(API_?KEYS?|KEYS?|PAT|PWD|CREDS?|DSN|COOKIES?)(_.*)?   # as a word of the name
    | .*(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|APIKEY|PRIVATE).*
    | (AWS|AZURE|GCP|GOOGLE|VAULT|KUBE|DOCKER|OPENAI|ANTHROPIC|GEMINI)_.*
    | SSH_AUTH_SOCK | SSH_AGENT_PID | GPG_AGENT_INFO | KUBECONFIG | NETRC | PGPASSFILE
    | (DATABASE|REDIS|MONGO|POSTGRES|AMQP|BROKER)\w*_(URL|URI)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NOT_SECRET = frozenset({"PWD"})


def names_a_secret(name: str) -> bool:
    """Whether a variable of this name holds a provider's key or another secret.

    >>> [name for name in ("OPENAI_API_KEY", "GITHUB_TOKEN", "EDITOR") if names_a_secret(name)]
    ['OPENAI_API_KEY', 'GITHUB_TOKEN']
    """
    if name.upper() in _NOT_SECRET:
        return False
    return _SECRET_NAME.fullmatch(name) is not None or name in _provider_variables()


@cache
def _provider_variables() -> frozenset[str]:
    from stepwell.models.providers import KNOWN_PROVIDERS

    return frozenset(known.key_env for known in KNOWN_PROVIDERS.values() if known.key_env)
