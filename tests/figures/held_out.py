"""Answers that were written before the rules that judge them, and never used to tune them. Nobody looks at single ones.

Each case is a request, what the tools of one worker return, and what the worker makes of it.
"""

from msgspec import Struct


class Case(Struct, frozen=True):
    """`tools` are what each tool returns, by its name; `answer` is what the worker says in the end."""

    name: str
    request: str
    tools: dict[str, object]
    answer: str


ORDERS = [
    {"order": "A-1041", "customer": "Brandt GmbH", "total_eur": 1290.50, "status": "shipped", "day": "2024-03-05"},
    {"order": "A-1042", "customer": "Lindqvist AB", "total_eur": 845.00, "status": "open", "day": "2024-03-07"},
    {"order": "A-1043", "customer": "Moreau SARL", "total_eur": 2310.75, "status": "open", "day": "2024-03-11"},
    {"order": "A-1044", "customer": "Brandt GmbH", "total_eur": 99.90, "status": "cancelled", "day": "2024-03-12"},
]
STOCK = {
    "columns": ["item", "in_stock", "reorder_at"],
    "rows": [["kettle", 14, 20], ["toaster", 52, 15], ["grinder", 7, 10]],
}
POLICY = (
    "Returns policy, version 3.2. Customers may return any unused item within 30 days of delivery for a full refund. "
    "Opened software cannot be returned. Refunds are paid within 5 working days. "
    "Questions: returns@shop.example or https://shop.example/help/returns."
)
SALES = {"columns": ["region", "q1", "q2"], "rows": [["North", 120000, 138000], ["South", 95000, 91200]]}
WEATHER = {"city": "Oslo", "temperature_c": -4.5, "wind_m_s": 11, "updated": "2024-01-18T06:00:00Z"}
SERVERS = [
    {"host": "web-1", "cpu_percent": 37.2, "memory_gb": 12.8, "uptime_days": 41},
    {"host": "web-2", "cpu_percent": 91.6, "memory_gb": 15.1, "uptime_days": 3},
    {"host": "db-1", "cpu_percent": 55.0, "memory_gb": 58.4, "uptime_days": 212},
]
PEOPLE = [
    {"name": "Ines Okafor", "role": "head of logistics", "since": "2019-06-01", "mail": "ines@firm.example"},
    {"name": "Paul Weber", "role": "head of finance", "since": "2021-02-15", "mail": "paul@firm.example"},
]

BAD = (
    Case("invented amount", "What is the total of A-1042?", {"orders": ORDERS}, "Order A-1042 comes to 912.40 EUR."),
    Case(
        "one digit changed",
        "How much did Moreau SARL order?",
        {"orders": ORDERS},
        "Moreau SARL ordered for 2,130.75 euros on 11 March 2024.",
    ),
    Case("rows swapped", "What is in stock?", {"stock": STOCK}, "There are 52 kettles and 14 toasters in stock."),
    Case(
        "rows swapped in a table",
        "List the CPU load of our hosts.",
        {"servers": SERVERS},
        "| host | CPU |\n|---|---|\n| web-1 | 91.6 % |\n| web-2 | 37.2 % |\n| db-1 | 55.0 % |",
    ),
    Case(
        "small whole number",
        "How many grinders are left?",
        {"stock": STOCK},
        "There are 9 grinders left, so they should be ordered again.",
    ),
    Case(
        "wrong period in a policy",
        "How long can I return something?",
        {"policy": POLICY},
        "You can return unused items within 14 days of delivery and get a full refund.",
    ),
    Case(
        "invented quotation",
        "What does the policy say about software?",
        {"policy": POLICY},
        'The policy says: "Opened software may be returned for store credit only."',
    ),
    Case(
        "invented e-mail address",
        "Whom do I write to about a return?",
        {"policy": POLICY},
        "Please write to support@shop.example with your order number.",
    ),
    Case(
        "invented address of a page",
        "Where is the help page about returns?",
        {"policy": POLICY},
        "It is at https://shop.example/returns/faq.",
    ),
    Case(
        "wrong sum",
        "What do the open orders come to?",
        {"orders": ORDERS},
        "The two open orders, A-1042 and A-1043, come to 3,255.75 EUR in total.",
    ),
    Case("day changed", "When was A-1043 placed?", {"orders": ORDERS}, "Order A-1043 was placed on 12 April 2024."),
)

CLEAN = (
    Case(
        "another format",
        "How much did Moreau SARL order?",
        {"orders": ORDERS},
        "Moreau SARL placed order A-1043 for €2,310.75 on March 11, 2024.",
    ),
    Case(
        "German format",
        "Wie hoch ist die Summe von A-1041?",
        {"orders": ORDERS},
        "Die Bestellung A-1041 der Brandt GmbH vom 05.03.2024 beläuft sich auf 1.290,50 €.",
    ),
    Case(
        "sum of some rows",
        "What do the open orders come to?",
        {"orders": ORDERS},
        "Two orders are open: A-1042 (845.00 EUR) and A-1043 (2,310.75 EUR). Together they come to 3,155.75 EUR.",
    ),
    Case(
        "growth in per cent",
        "How did sales develop?",
        {"sales": SALES},
        "North grew from 120,000 to 138,000, which is 15 % more. South fell by 4 % from 95,000 to 91,200.",
    ),
    Case(
        "rounded",
        "How did sales develop?",
        {"sales": SALES},
        "North sold about 138k in the second quarter, South roughly 91 thousand.",
    ),
    Case(
        "count of rows",
        "How many orders are there?",
        {"orders": ORDERS},
        "There are 4 orders, of which 2 are open, 1 is shipped and 1 is cancelled.",
    ),
    Case(
        "quoted and linked",
        "What is the returns policy?",
        {"policy": POLICY},
        'The policy (version 3.2) allows it: "Customers may return any unused item within 30 days of delivery". '
        "More at https://shop.example/help/returns or from returns@shop.example.",
    ),
    Case(
        "steps in a list",
        "How do I return something?",
        {"policy": POLICY},
        "1. Check that the item is unused.\n2. Send it back within 30 days.\n"
        "3. The refund comes within 5 working days.",
    ),
    Case(
        "whole table",
        "What should we order again?",
        {"stock": STOCK},
        "| item | in stock | reorder at | short by |\n|---|---|---|---|\n| kettle | 14 | 20 | 6 |\n"
        "| grinder | 7 | 10 | 3 |"
        "\n\nThe toaster is fine: 52 in stock.",
    ),
    Case(
        "weather in words",
        "How cold is it in Oslo?",
        {"weather": WEATHER},
        "On 18 January 2024 at 06:00 it was minus 4.5 degrees in Oslo, with wind of 11 m/s (about 40 km/h).",
    ),
    Case(
        "ranking",
        "Which host is busiest?",
        {"servers": SERVERS},
        "web-2 is the busiest with 91.6 % CPU, ahead of db-1 (55 %) and web-1 (37.2 %). It has been up for only "
        "3 days; db-1 has the longest uptime, 212 days.",
    ),
    Case(
        "people",
        "Who leads what?",
        {"people": PEOPLE},
        "Ines Okafor has been head of logistics since June 2019 (ines@firm.example). Paul Weber leads finance since "
        "15 February 2021.",
    ),
)
