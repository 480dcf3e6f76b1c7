"""Answers that the rules were tuned on."""

from tests.figures.held_out import Case

INVOICES = [
    {"invoice": "R-501", "supplier": "Holm", "amount": 8412.50, "due": "2025-05-14", "paid": False},
    {"invoice": "R-502", "supplier": "Ferrari", "amount": 1200, "due": "2025-05-20", "paid": True},
    {"invoice": "R-503", "supplier": "Novak", "amount": 640.25, "due": "2025-06-02", "paid": False},
]
TEXT = (
    "Alpine Hut was founded in 1998 by Rosa Keller. It has 46 beds in 8 rooms, is open from 15 June to 30 September, "
    "and lies at 2,134 m. A night costs CHF 58 per person. "
    "The warden says: the path from the valley takes three hours and is safe after the snow has gone."
)
CITIES = {
    "columns": ["city", "inhabitants", "area_km2"],
    "rows": [["Graz", 292630, 127.57], ["Linz", 210165, 95.99], ["Salzburg", 157399, 65.65]],
}
TEMPERATURES = {"monday": 17.5, "tuesday": 21.0, "wednesday": 19.25}
PROJECT = {
    "name": "Atlas",
    "budget_usd": 250000,
    "spent_usd": 187500,
    "open_tickets": 23,
    "members": ["Ana", "Ben", "Cy"],
}
TEAM = [
    {"person": "Ana Silva", "task": "database", "hours": 12},
    {"person": "Ben Ott", "task": "interface", "hours": 30},
    {"person": "Cy Young", "task": "tests", "hours": 21},
]

BAD = (
    Case("invented total", "What does Holm get?", {"invoices": INVOICES}, "Holm's invoice R-501 is over 9,875.00."),
    Case("digits turned round", "What does Novak get?", {"invoices": INVOICES}, "Novak is owed 604.25."),
    Case("suppliers swapped", "What does Ferrari get?", {"invoices": INVOICES}, "Ferrari's invoice is over 640.25."),
    Case("due day changed", "When is R-501 due?", {"invoices": INVOICES}, "R-501 is due on 2025-05-24."),
    Case("invented beds", "How many beds are there?", {"search": TEXT}, "The hut has 64 beds in 8 rooms."),
    Case("small number", "How many rooms are there?", {"search": TEXT}, "The hut has 6 rooms."),
    Case("year changed", "When was it founded?", {"search": TEXT}, "Rosa Keller founded the hut in 1989."),
    Case(
        "invented words of a person",
        "What does the warden say?",
        {"search": TEXT},
        "The warden says: “The path from the valley takes five hours and is dangerous.”",
    ),
    Case("invented page", "Where can I book?", {"search": TEXT}, "Book at https://www.alpinehut.example/booking."),
    Case("invented mail", "Where can I book?", {"search": TEXT}, "Write to hut@alpine.example to book a bed."),
    Case(
        "row labels swapped in a table",
        "How big are the cities?",
        {"cities": CITIES},
        "| City | Inhabitants |\n|---|---|\n| Graz | 210,165 |\n| Linz | 292,630 |\n| Salzburg | 157,399 |",
    ),
    Case(
        "columns swapped", "How big is Linz?", {"cities": CITIES}, "Linz has an area of 127.57 km² and 210,165 people."
    ),
    Case("wrong mean", "How warm was it?", {"temperatures": TEMPERATURES}, "On average it was 20.4 degrees."),
    Case(
        "wrong share",
        "How much is spent?",
        {"project": PROJECT},
        "187,500 of 250,000 dollars are spent, which is 85 %.",
    ),
    Case("wrong count", "How many members are there?", {"project": PROJECT}, "Atlas has 5 members."),
    Case("wrong difference", "What is left?", {"project": PROJECT}, "There are 72,500 dollars left in the budget."),
    Case("hours of another person", "How long?", {"team": TEAM}, "Ben Ott worked 21 hours on the interface."),
)

CLEAN = (
    Case("as returned", "What does Holm get?", {"invoices": INVOICES}, "Holm's invoice R-501 is over 8,412.50."),
    Case("German", "Was bekommt Holm?", {"invoices": INVOICES}, "Holm bekommt 8.412,50 Euro bis zum 14. Mai 2025."),
    Case(
        "sum of unpaid",
        "What is unpaid?",
        {"invoices": INVOICES},
        "Two invoices are unpaid, R-501 and R-503; together that is 9,052.75.",
    ),
    Case("whole sum", "What is the sum?", {"invoices": INVOICES}, "The three invoices total 10,252.75."),
    Case("rounded", "How big is Graz?", {"cities": CITIES}, "Graz has almost 293,000 inhabitants, Linz about 210,000."),
    Case(
        "density",
        "How dense is Graz?",
        {"cities": CITIES},
        "Graz has 292,630 inhabitants on 127.57 km²: 2,294 per km².",
    ),
    Case("prose", "Tell me of the hut.", {"search": TEXT}, "The hut (founded 1998) offers 46 beds in eight rooms."),
    Case(
        "open", "When is it open?", {"search": TEXT}, "It is open from June 15 to September 30; a night is 58 francs."
    ),
    Case("hours in digits", "How far is it?", {"search": TEXT}, "The walk up takes 3 hours."),
    Case("feet", "How high is it in feet?", {"search": TEXT}, "It lies at 2,134 m, that is about 7,000 feet."),
    Case("mean", "How warm was it?", {"temperatures": TEMPERATURES}, "The average was 19.25 degrees."),
    Case(
        "difference", "How warm was it?", {"temperatures": TEMPERATURES}, "Tuesday was 3.5 degrees warmer than Monday."
    ),
    Case("share", "How much is spent?", {"project": PROJECT}, "75 % of the budget is spent, 62,500 dollars are left."),
    Case("in thousands", "How much is spent?", {"project": PROJECT}, "Atlas has spent $187.5k of its $250k."),
    Case("members", "Who is there?", {"project": PROJECT}, "The 3 members are Ana, Ben and Cy; 23 tickets are open."),
    Case(
        "several numbers in a sentence",
        "Who does what?",
        {"team": TEAM},
        "Ana Silva and Ben Ott worked 12 and 30 hours respectively; Cy Young spent 21 hours on tests.",
    ),
    Case(
        "a ranking with ordinals",
        "Who worked most?",
        {"team": TEAM},
        "1st: Ben Ott (30 h), 2nd: Cy Young (21 h), 3rd: Ana Silva (12 h). That makes 63 hours for 3 people.",
    ),
    Case(
        "steps",
        "How do I pay?",
        {"invoices": INVOICES},
        "## Step 1\nOpen invoice R-501.\n## Step 2\nPay 8,412.50 to Holm by 14 May.\n\nOnly 1 of 3 invoices is paid.",
    ),
    Case("percent of", "What is 10 % of Holm's?", {"invoices": INVOICES}, "10 % of 8,412.50 is 841.25."),
    Case("echo", "Is R-502 over 1000 paid?", {"invoices": INVOICES}, "Yes: R-502 is over 1000 (1,200) and it is paid."),
    Case(
        "compare",
        "Which is bigger?",
        {"cities": CITIES},
        "Graz is larger than Linz by 82,465 people and has 39 % more.",
    ),
    Case(
        "times",
        "Which is bigger?",
        {"cities": CITIES},
        "Graz has nearly twice as many people as Salzburg (1.86 times).",
    ),
)
