"""Secrets and configuration as mappings. Their values are read when they are used."""

from collections.abc import Iterator, Mapping

from componentize_py_types import Err
from wit_world.imports import grants, wasi_config_store

from _faasw import phase


class Secrets(Mapping[str, str]):
    """The secrets that the operator has granted to this function, by their names.

    Names are known at the top level. A value can be read only while a request is answered.
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> str:
        phase.require_request(f"the secret {name!r}")
        if name not in self:
            raise KeyError(f"no secret {name!r} is granted: deploy with --secret {name}")
        value = _read(name)
        if value is None:
            raise KeyError(f"the secret {name!r} has no value: set it with `faasw secret set`")
        return value

    def __contains__(self, name: object) -> bool:
        return name in grants.secrets()

    def __iter__(self) -> Iterator[str]:
        return iter(grants.secrets())

    def __len__(self) -> int:
        return len(grants.secrets())

    def __repr__(self) -> str:
        return f"<secrets: {', '.join(self)}>"


class Config(Mapping[str, str]):
    """The function's configuration, by its keys. It is known at the top level, too."""

    __slots__ = ()

    def __getitem__(self, key: str) -> str:
        return dict(grants.configuration())[key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(grants.configuration()))

    def __len__(self) -> int:
        return len(grants.configuration())

    def __repr__(self) -> str:
        return f"<configuration: {', '.join(self)}>"


def _read(name):
    try:
        return wasi_config_store.get(name)
    except Err as error:
        raise RuntimeError(error.value.value) from None
