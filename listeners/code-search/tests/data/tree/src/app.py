"""Example."""

import os

LIMITS = {
    "login": 3,
}


# Signs a person in.
@decorated
async def login(
    name,
    password,
):
    """Several lines:
def not_a_definition():
    """
    if name:
        return True

    return os.environ


class Session:
    """A session."""

    def close(self):
        return "# not a comment"

    def open(self):
        pass
