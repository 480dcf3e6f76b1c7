"""Write the table of prices of the package anew, from the `genai-prices` that is installed: `make prices`."""

import sys
import time
from pathlib import Path

import msgspec
from msgspec import structs

from chargehand.models.package_prices import package_table
from chargehand.models.price_table import PriceTable
from chargehand.models.prices import read_table

FILE = Path(__file__).parents[2] / "src/chargehand/models/price_table.json"


def written(table: PriceTable) -> bytes:
    """The table as the file has it: a line a provider, so that a difference can be read."""
    head = msgspec.json.encode(structs.replace(table, providers=()))
    lines = b",\n".join(msgspec.json.encode(provider) for provider in table.providers)
    return head.replace(b'"providers":[]', b'"providers":[\n' + lines + b"\n]") + b"\n"


def main() -> None:
    table = package_table(made=time.strftime("%Y-%m-%d", time.gmtime()))
    if FILE.exists():
        before = read_table(FILE.read_bytes())
        if before == structs.replace(table, made=before.made):
            sys.stdout.write(f"{FILE.name} is up to date: {before.source}, made {before.made}\n")
            return
    FILE.write_bytes(written(table))
    count = sum(len(provider.models) for provider in table.providers)
    sys.stdout.write(f"{FILE.name}: {table.source}, {count} models of {len(table.providers)} providers\n")


if __name__ == "__main__":
    main()
