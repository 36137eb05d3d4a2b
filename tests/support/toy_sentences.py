"""A few sentences in two languages, enough to learn a toy vocabulary from."""

SENTENCES = [
    "A dog runs after 1000 balls, 100 of them red.",
    "Ein Hund läuft 1000 Bällen nach, 100 davon rot.",
    "The café opens at 10 and closes at 22:00.",
    "Das Café öffnet um 10 und schließt um 22:00.",
    "100000 haha hahaha banana bananas ananas 00 000 0000",
] * 3
