"""Passwords that everybody tries first: words and rows of keys, alone, repeated, or with digits and signs around."""

from __future__ import annotations

WORDS = frozenset(
    """
    abc abcd access account admin administrator agency amazon america analyst andrew angel apple arsenal asdf asdfgh
    asdfghjkl august autumn award baby bailey banana baseball basketball batman beautiful bitte blink buster butterfly
    census changeit changeme charlie cheese chelsea chocolate computer confidential cookie correcthorsebatterystaple
    cowboy daniel data december default dragon easter eagle fall family flower football forever freedom friday friend
    fuckyou geheim george ginger guest hallo hannah hello hockey house hunter iloveyou iloveyoubaby iloveyousomuch
    internet january jennifer jessica jesus jordan joshua justin killer letmein liverpool login london love loveme
    lovely manager master matrix matthew merlin michael michelle microsoft monday monkey mother mustang myname
    naruto newyork nicole november number ninja nothing office officer october orange pass passord passwort password
    passwords pepper please pokemon princess private purple pussy qazwsx qazwsxedc qwer qwert qwertz qwerty qwertyuiop
    release ranger robert root safe safeswap samsung saturday season secret secure security september service shadow
    slipknot soccer spring star startrek starwars statistics summer sunday sunshine superman superuser survey swap
    system taylor temp temporary test tester testing thomas thursday tigger trustno trustnoone tuesday user username
    virginia wednesday welcome whatever winter wizard workbench yankees yourpassword zaqwsx zxcvbn zxcvbnm
    """.split()  # noqa: SIM905  (a list of words reads best as words)
)
ROWS = ("abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm", "01234567890")
_SPELLED = str.maketrans("@4301!5$7+", "aaeoliss" + "tt")
_FEWEST = 5  # different characters


def is_common(password: str) -> bool:
    """Whether a password is among the first that somebody would try.

    >>> is_common("P@ssw0rd2026!"), is_common("qwertyuiopas"), is_common("aaaaaaaaaaaa1"), is_common("three blind mice")
    (True, True, True, False)
    """
    plain = "".join(password.casefold().split())
    if len(set(plain)) < _FEWEST or any(plain in row * 3 or plain in row[::-1] * 3 for row in ROWS):
        return True
    return any(_is_of_words(letters) for letters in (_letters(plain), _letters(plain.translate(_SPELLED))))


def _letters(text: str) -> str:
    return "".join(character for character in text if character.isalpha())


def _is_of_words(letters: str) -> bool:
    """Whether nothing but one or two common words is left of a password without digits and signs."""
    if letters in WORDS or not letters:
        return True
    if any(letters.replace(word, "") == "" for word in WORDS):
        return True
    return any(letters[:at] in WORDS and letters[at:] in WORDS for at in range(1, len(letters)))
