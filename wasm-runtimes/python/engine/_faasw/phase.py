"""Whether a request is being answered: secrets and stores are available only then."""

in_request = False


def require_request(what: str) -> None:
    """Raises RuntimeError if top-level code, which runs once for all requests, uses `what`."""
    if not in_request:
        raise RuntimeError(
            f"{what} is only available while a request is answered: use it in the handler, "
            "not at the top level"
        )
