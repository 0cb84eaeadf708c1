import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sweep-kills", type=int, default=0, help="run the whole matrix this often")
