"""General English as data: words that say little, and groups of words that mean nearly the same.

Nothing here knows any team or its subject. How words are compared is the business of `words`.
"""

_STOP = """a about above after again all also am an and any are as at be been before being below between both but by
can could did do does doing done down each either else every few for from further get give given got had has have
having he her here him his how i if in into is it its itself just know let like make many may me might more much must
my need no nor not now of off on once only or other our out over own per please same shall she should show so some
such tell than that the their them then there these they thing this those through to too under until up us use used
using very want was we well were what when where which while who whom whose why will with within without would yes yet
you your me say says said question answer help kindly thanks whether"""
STOP = frozenset(_STOP.split())

# what is said in several words, or in one that is told apart badly, and the one word that stands for it
PHRASES: tuple[tuple[str, str], ...] = (
    (r"how many", "count"),
    (r"how much", "amount"),
    (r"number of", "count"),
    (r"how long", "duration"),
    (r"how often", "frequency"),
    (r"how far", "distance"),
    (r"how old", "age"),
    (r"look(?:s|ed|ing)? (?:it |them )?up", "find"),
    (r"look(?:s|ed|ing)? for", "find"),
    (r"says? about", "find passage"),
    (r"work(?:s|ed|ing)? out", "calculate"),
    (r"add(?:s|ed|ing)? up", "sum"),
    (r"per cent", "percent"),
    (r"year on year|year over year|month on month|month over month", "growth"),
    (r"write(?:s)? (?:it |them )?(?:up|down)", "write"),
)

# words of one line mean nearly the same; a word may stand in several lines
_GROUPS = """
revenue sales sale sold sell turnover income earn earned takings proceeds
cost price expense spend spent charge fee expensive cheap pay paid
draw plot chart graph picture diagram visualise visualize visualisation histogram figure
find search look lookup retrieve locate seek discover
average mean avg typical
median middle
compare versus vs comparison contrast against differ difference
convert exchange translate change conversion converted
count number quantity amount many tally
most top highest largest biggest maximum max best greatest longest
least lowest smallest fewest minimum min worst shortest cheapest bottom
sum total add altogether overall aggregate
calculate compute calculation arithmetic evaluate math maths formula
multiply times product
divide ratio quotient share proportion
percent percentage share rate proportion
summarise summarize summary digest condense brief overview recap abstract
write draft compose memo report letter prose email
recommend recommendation advise advice suggest suggestion propose proposal
explain describe description clarify definition define
document documents file files manual handbook policy guide note notes page article passage text
database table tables sql query record records row rows dataset data column
employee staff worker personnel colleague team
customer client buyer shopper consumer account
patient case
product item goods article merchandise sku
order purchase buy bought transaction ordered
month monthly
year yearly annual annually
day daily date
week weekly
quarter quarterly
country nation land
city town place
region area territory zone
currency money euro eur usd dollar pound gbp yen jpy chf franc
dollar usd
euro eur
pound gbp sterling
yen jpy
franc chf
weather forecast temperature rain climate
translate translation language
grow growth increase rise trend change gain
fall drop decrease decline shrink loss
stock inventory supply warehouse
rank ranking order sort league
list enumerate
time clock hour now
leave depart departure
arrive arrival
appointment visit booking reservation
doctor physician clinician
book title volume
author writer
borrow loan lend lent checkout
plant flower crop vegetable
delay late overdue
refund return reimburse
fetch download url web http website page
code python script program
schedule plan timetable calendar
margin profit earnings
distance far length kilometre mile
weight mass kilogram heavy
rule regulation policy
agreement contract
problem issue fault error
person people human name
rate rating score grade
law legal lawful lawyer court
"""
GROUPS: tuple[tuple[str, ...], ...] = tuple(tuple(line.split()) for line in _GROUPS.strip().splitlines())

# words that ask for something to be done; a clause may begin with one
_VERBS = """add advise analyse analyze answer assess book break build calculate change chart check choose clean combine
compare compile compose compute contrast convert count create decide define describe design determine diagnose
display divide double download draft draw email estimate evaluate examine exchange explain export extract fetch
figure file filter find forecast gather generate give go graph group highlight identify illustrate include
inspect lay list locate look make measure mention multiply name note order organise outline paint pick plan plot
point predict prepare present price print produce propose prove provide pull put quote rank rate read recommend
reconcile report research retrieve return review round run save say schedule search select send show sketch sort
split state structure sum subtract suggest summarise summarize take tally tell test total trace track transcribe
translate try update use validate verify visualise visualize weigh work write"""
VERBS = frozenset(_VERBS.split())

# verbs that are as often nouns: "and chart the sales" asks for one, "and order value" does not
_NOUNS_TOO = """answer book break change chart check clean contrast count design double display divide email
estimate exchange file figure filter forecast graph group highlight list look measure mention name note order outline
plan plot point present price print produce quote rank rate report research return review round run save schedule search
sketch sort split state structure sum test total trace track try update use work"""
NOUNS_TOO = frozenset(_NOUNS_TOO.split())

_AFTER_VERB = """a an the all any each every both it its them these those this that their his her our my your us me how
what which who when where why whether if for by in on to from of with about up out two three four five six"""
AFTER_VERB = frozenset(_AFTER_VERB.split())

_ASKING, _RELATIVE = "what how why who whom", "which when where whose whether"
ASKING, RELATIVE = frozenset(_ASKING.split()), frozenset(_RELATIVE.split())

_AUXILIARY = "is are was were do does did can could should would will shall has have had may might must am be been"
AUXILIARY = frozenset(_AUXILIARY.split())

_PAST = """brought sold went made came took got ran grew fell rose cost paid bought lost won sent saw began held kept
met gave wrote left"""
PAST = frozenset(_PAST.split())

_PREPOSITIONS = """for in during from since over across between within at on using given based if after before because
assuming considering with as among until while throughout regarding concerning under through"""
PREPOSITIONS = frozenset(_PREPOSITIONS.split())

# verbs that change something in the world, where a team must say that it does just that
_DEEDS = """book buy order send email pay cancel delete call schedule hire install deploy publish post reserve transfer
remove approve sign print upload rename move invite notify register subscribe sell ship refund fire translate"""
DEEDS = frozenset(_DEEDS.split())
# who does these does them to anything
OPEN_DEEDS = frozenset({"translate"})

_MONTHS = "january february march april may june july august september october november december"
MONTHS = tuple(_MONTHS.split())
_NUMBER_WORDS = "two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS.split(), 2)}
