import pytest

from tests.support.session_room import SessionRoom


@pytest.fixture
def room() -> SessionRoom:
    return SessionRoom()
