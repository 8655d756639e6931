"""What a sandbox of containers can be made with."""

import pytest

from stepwell.errors import ConfigurationError
from stepwell.sandbox.containers import ContainerSandbox


def test_it_is_called_as_its_program() -> None:
    assert [ContainerSandbox().name, ContainerSandbox("podman").name] == ["docker", "podman"]


def test_another_program_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="use 'docker' or 'podman'"):
        ContainerSandbox("lxc")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("image", ["", "--privileged", "two words"])
def test_what_is_not_an_image_is_refused(image: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid image"):
        ContainerSandbox(image=image)
