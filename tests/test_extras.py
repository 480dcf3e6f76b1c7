"""What is said where an optional part of the package is not installed."""

from importlib import import_module

import pytest

from chargehand.errors import Invalid
from chargehand.extras import OfExtra


def test_a_package_that_is_missing_is_named_with_what_to_type() -> None:
    advice = r"serve needs no_such_package, which is not here: pip install .*\[server\]"
    with pytest.raises(Invalid, match=advice), OfExtra("serve", "server"):
        import_module("no_such_package")


def test_a_module_of_our_own_that_is_missing_is_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError), OfExtra("serve", "server"):
        import_module("chargehand.no_such_module")
    with pytest.raises(Invalid, match="needs chargehand_tools"), OfExtra("serve", "server"):
        import_module("chargehand_tools")
