"""Results that are known to be right or wrong, seeded by hand: six kinds of mistakes in eight tasks.

What anybody makes of them is measured in `bench.verifier`.
"""

import re
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, field

from chargehand.agents.checks import Check, Rule

_FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
_ADDRESS = re.compile(r"https?://\S+")


class Seeded(Struct, frozen=True):
    """A task, what there is to work from, the checks a careful team would set, and results by what is wrong."""

    name: str
    instruction: str
    source: str
    checks: Mapping[str, Check]
    right: tuple[str, ...]
    wrong: Mapping[str, str]
    schema: dict[str, object] | None = field(default=None)


def only_from(source: str) -> Callable[[dict[str, str]], str]:
    """A check: every figure and every address of a text stands in its source."""
    figures = {one.replace(",", "") for one in _FIGURE.findall(source)}
    addresses = {one.rstrip(".,)") for one in _ADDRESS.findall(source)}

    def check(product: dict[str, str]) -> str:
        text = product["text"]
        strange = [one.rstrip(".,)") for one in _ADDRESS.findall(text)]
        strange = [one for one in strange if one not in addresses]
        bare = _ADDRESS.sub(" ", text)
        strange += [one for one in _FIGURE.findall(bare) if one.replace(",", "") not in figures]
        return f"{', '.join(strange)} is not in the source" if strange else ""

    return check


def adds_up(product: dict[str, str]) -> bool:
    """A check of records: the total is what the lines come to."""
    record = msgspec.json.decode(product["text"], type=dict[str, object])
    lines = msgspec.convert(record.get("lines", []), list[dict[str, float | str]])
    return abs(sum(float(one["euros"]) for one in lines) - float(str(record.get("total", 0)))) < 0.005


WHOLE = Rule(matches=r"[.!?]\s*\Z")
HARVEST = "Harvest 2024: apples 1,840 kg, pears 615 kg, plums 290 kg. Source: https://orchard.example/harvest-2024"
PRICES = "Price list: brake set 21.40 euros, chain 14.90 euros, saddle 38.00 euros (prices.csv)."
LEAVE = (
    "Handbook, section 4: Employees have 28 days of leave. Leave must be asked for 14 days ahead. "
    "Unused leave ends on 31 March of the next year. See https://handbook.example/leave"
)
WEATHER = "Station report: highest wind 96 km/h at 14:20, rain 31 mm, lowest temperature 4 degrees, on Tuesday."
ORDER = "Order 7731: 12 chairs at 45.00 euros, 3 tables at 180.00 euros, delivery 25.00 euros. Supplier: Ott GmbH."
MEETING = (
    "Minutes: The board meets on Monday. It approved 48,000 euros for the roof and postponed the lift. "
    "Ms Keller will ask three builders for offers by 15 May."
)
TRIAL = "Trial results: 212 patients, 71 percent improved, 9 percent stopped early. Report: https://trial.example/r17"
STOCK = "Stock: bolts 1250, nuts 840, washers 3100. Counted on Friday by Lena."

RECORD: dict[str, object] = {
    "type": "object",
    "properties": {
        "supplier": {"type": "string", "minLength": 1},
        "lines": {"type": "array", "minItems": 3, "items": {"type": "object", "required": ["what", "euros"]}},
        "total": {"type": "number"},
    },
    "required": ["supplier", "lines", "total"],
}
LINES = '[{"what": "chairs", "euros": 540.0}, {"what": "tables", "euros": 540.0}, {"what": "delivery", "euros": 25.0}]'


def prose(source: str, *words: str, least: int = 8) -> dict[str, Check]:
    rule = Rule(contains=words, min_words=least, has_number=True)
    return {"words": rule, "whole": WHOLE, "figures": only_from(source)}


CASES = (
    Seeded(
        name="harvest",
        instruction="Summarise the harvest: how much of each fruit, and where the figures come from.",
        source=HARVEST,
        checks=prose(HARVEST, "apples", "pears", "plums", "orchard.example"),
        right=(
            (
                "The harvest of 2024 brought 1,840 kg of apples, 615 kg of pears and 290 kg of plums "
                "(https://orchard.example/harvest-2024)."
            ),
            (
                "In 2024 there were 290 kg of plums, 615 kg of pears and 1,840 kg of apples; the figures are those of "
                "https://orchard.example/harvest-2024."
            ),
        ),
        wrong={
            "number": "The harvest of 2024 brought 1,480 kg of apples, 615 kg of pears and 290 kg of plums "
            "(https://orchard.example/harvest-2024).",
            "missing": "The harvest of 2024 brought 1,840 kg of apples and 615 kg of pears, a good year.",
            "empty": " ",
            "off_topic": "Volcanoes form where molten rock reaches the surface; Iceland has about 130 of them.",
            "truncated": "The harvest of 2024 brought 1,840 kg of apples, 615 kg of pears and",
            "url": "The harvest of 2024 brought 1,840 kg of apples, 615 kg of pears and 290 kg of plums "
            "(https://fruit-statistics.example/world).",
        },
    ),
    Seeded(
        name="price",
        instruction="Say what a brake set and a chain cost, in euros, with the source.",
        source=PRICES,
        checks={**prose(PRICES, "brake set", "chain", least=6), "cites": Rule(cites=True)},
        right=(
            "A brake set costs 21.40 euros and a chain 14.90 euros (prices.csv).",
            "According to prices.csv the chain is 14.90 euros and the brake set 21.40 euros.",
        ),
        wrong={
            "number": "A brake set costs 24.10 euros and a chain 14.90 euros (prices.csv).",
            "missing": "A brake set costs 21.40 euros (prices.csv), as the list says.",
            "empty": "I'm sorry, I do not know what these cost.",
            "off_topic": "The saddle was invented long before the stirrup, and riders of the steppe made it of felt.",
            "truncated": "According to prices.csv a brake set costs 21.40 euros and a chain",
            "url": "A brake set costs 21.40 euros and a chain 14.90 euros (https://bike-deals.example/brakes).",
        },
    ),
    Seeded(
        name="leave",
        instruction="How many days of leave are there, and how far ahead must leave be asked for?",
        source=LEAVE,
        checks=prose(LEAVE, "28", "14", "leave"),
        right=(
            "There are 28 days of leave, and leave must be asked for 14 days ahead.",
            "Employees have 28 days of leave; they ask for leave 14 days ahead (https://handbook.example/leave).",
        ),
        wrong={
            "number": "There are 38 days of leave, and leave must be asked for 14 days ahead.",
            "missing": "Employees have 28 days of leave, which end on 31 March of the next year.",
            "empty": "",
            "off_topic": "Photosynthesis turns light into sugar; a large oak has more than 200 000 green parts for it.",
            "truncated": "There are 28 days of leave, and leave must be asked for 14 days ahead, because the",
            "url": "There are 28 days of leave, asked for 14 days ahead (https://leave-rules.example/eu).",
        },
    ),
    Seeded(
        name="weather",
        instruction="Report the highest wind and the rain of the station, in a sentence each.",
        source=WEATHER,
        checks=prose(WEATHER, "wind", "rain"),
        right=(
            "The highest wind was 96 km/h. There were 31 mm of rain.",
            "Wind: at most 96 km/h, at 14:20 on Tuesday. Rain: 31 mm in all of the report.",
        ),
        wrong={
            "number": "The highest wind was 69 km/h. There were 31 mm of rain.",
            "missing": "The highest wind was 96 km/h, measured at 14:20 on Tuesday.",
            "empty": "N/A",
            "off_topic": "Chess has 64 squares, and a knight can visit each of them exactly once on a closed tour.",
            "truncated": "The highest wind was 96 km/h, and the station reports that the rain",
            "url": "The highest wind was 96 km/h and the rain 31 mm; maps are at https://storm-maps.example/tuesday.",
        },
    ),
    Seeded(
        name="order",
        instruction="Write the order as a record: supplier, lines with euros, total.",
        source=ORDER,
        checks={"record": RECORD, "adds_up": adds_up},
        right=(
            f'{{"supplier": "Ott GmbH", "lines": {LINES}, "total": 1105.0}}',
            f'{{"total": 1105, "lines": {LINES}, "supplier": "Ott GmbH"}}',
        ),
        wrong={
            "number": f'{{"supplier": "Ott GmbH", "lines": {LINES}, "total": 1150.0}}',
            "missing": f'{{"lines": {LINES}, "total": 1105.0}}',
            "empty": "{}",
            "off_topic": '{"planet": "Saturn", "moons": 146, "rings": true}',
            "truncated": f'{{"supplier": "Ott GmbH", "lines": {LINES[:60]}',
            "url": f'{{"supplier": "https://ott-shop.example/", "lines": {LINES}, "total": 990.0}}',
        },
    ),
    Seeded(
        name="minutes",
        instruction="Say what the board decided about the roof and the lift, and what Ms Keller will do.",
        source=MEETING,
        checks=prose(MEETING, "roof", "lift", "Keller"),
        right=(
            (
                "The board approved 48,000 euros for the roof and postponed the lift. Ms Keller will ask three "
                "builders for offers by 15 May."
            ),
            "For the roof 48,000 euros were approved, the lift was postponed, and Ms Keller asks builders for offers.",
        ),
        wrong={
            "number": "The board approved 84,000 euros for the roof and postponed the lift. Ms Keller asks builders.",
            "missing": "The board approved 48,000 euros for the roof and will come back to the rest on Monday.",
            "empty": "TBD",
            "off_topic": "Tides follow the moon: there are two high waters in roughly 25 hours on most coasts.",
            "truncated": "The board approved 48,000 euros for the roof, postponed the lift, and Ms Keller will ask the",
            "url": "The board approved 48,000 euros for the roof and postponed the lift; Ms Keller asks builders, see "
            "https://builders.example/offers.",
        },
    ),
    Seeded(
        name="trial",
        instruction="How many patients were there, how many improved, and how many stopped early?",
        source=TRIAL,
        checks=prose(TRIAL, "212", "71", "9 percent"),
        right=(
            "Of 212 patients 71 percent improved and 9 percent stopped early.",
            "There were 212 patients: 71 percent improved, 9 percent stopped early (https://trial.example/r17).",
        ),
        wrong={
            "number": "Of 212 patients 77 percent improved and 9 percent stopped early.",
            "missing": "Of 212 patients 71 percent improved, which is a good result for such a trial.",
            "empty": "As an AI I cannot answer questions about medicine.",
            "off_topic": "Bridges of stone were built with arches, and 12 of them still carry the road to the coast.",
            "truncated": "Of 212 patients 71 percent improved and 9 percent stopped early, which is because of",
            "url": "Of 212 patients 71 percent improved and 9 percent stopped early (https://med-news.example/r17).",
        },
    ),
    Seeded(
        name="stock",
        instruction="List the stock of bolts, nuts and washers, and who counted it.",
        source=STOCK,
        checks=prose(STOCK, "bolts", "nuts", "washers", "Lena", least=6),
        right=(
            "Lena counted 1250 bolts, 840 nuts and 3100 washers on Friday.",
            "- bolts: 1250\n- nuts: 840\n- washers: 3100\n\nLena counted them on Friday.",
        ),
        wrong={
            "number": "Lena counted 1250 bolts, 480 nuts and 3100 washers on Friday.",
            "missing": "There are 1250 bolts and 840 nuts in stock, counted on Friday by Lena.",
            "empty": "{{result}}",
            "off_topic": "The opera opened in 1868 and was rebuilt after the fire; its curtain is made of iron.",
            "truncated": "Lena counted 1250 bolts, 840 nuts, and 3100 washers, all of them on the",
            "url": "Lena counted 1250 bolts, 840 nuts and 3100 washers (https://warehouse.example/live).",
        },
    ),
)
KINDS = tuple(CASES[0].wrong)
