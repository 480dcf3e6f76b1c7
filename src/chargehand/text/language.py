"""Whether texts are English, by their commonest words. Which other language it is, is not told."""

from collections.abc import Iterable

from chargehand.text.words import LETTERS, STOP_WORDS

# The commonest words of German, French, Spanish, Italian, Portuguese, Dutch, Polish and Turkish, without English ones.
_OTHER_WORDS = """
    aber auch auf aus bei beim bis das dem den der des dich die ein eine einem einen einer fragen fuer haben ich ihr
    im ist kann kein keine mein meine mich mit nach nicht nur oder ohne sich sie sind sowie ueber um und uns unser
    unter vom von vor wann warum was wenn wer werden wie wir wird wo zu zum zur
    au aux avec ce ces cette chez comment dans depuis des dont du elle elles en est et il ils je la le les leur leurs
    lui ma mais mes mon nous ou par pas plus pour puis quand que quel quelle qui sa sans ses son sont sur ta tous un
    une vos votre vous
    al como con cuando del donde el ella ellos esta este hay las los mas mi nos nosotros para pero por porque puedo
    quiere quiero se sin sobre su sus tiene una uno usted y
    alla alle anche che chi ci come con cosa da dal dalla degli dei del della delle di dove gli ho il io lo loro ma
    mio mia nei nel nella non per posso quando questo sono su sugli sul sulla tra una voglio
    ao aos ate com da das de do dos ela eles em essa esse eu foi isso mais meu minha muito na nao nas no nos num o os
    ou para pela pelo por quem se sem seu sua tem uma voce
    aan bij dat de deze dit een en er heb heeft het hij hoe ik ik je kan maar met mij mijn naar niet nog of om onze
    ook op over te uit van voor waar wat we wie wij zij zijn
    ale czy dla do gdzie jak jest lub mam mnie na nie od po przez sie to w z za ze
    bir bu da de icin ile ne nasil ve veya
"""
_OTHERS = frozenset(_OTHER_WORDS.split()) - STOP_WORDS


def is_english(texts: Iterable[str]) -> bool:
    """False only where other languages clearly have the upper hand; a few words that may be anything are English."""
    english = others = 0
    for text in texts:
        for word in LETTERS.findall(text.lower()):
            if word in STOP_WORDS:
                english += 1
            elif word in _OTHERS or not word.isascii():
                others += 1
    return others < 2 or others <= english
