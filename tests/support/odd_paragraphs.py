"""Texts of several sentences in several languages and with odd characters, made up for tests."""

PARAGRAPHS = [
    ("", ""),
    ("Two dogs play. A man sleeps!\n\n\tWhy? \"No one knows,\" he said.  Mr. X left.\n", "en"),
    ("Herr Dr. Müller kam am 3. Oktober, z. B. um 5.30 Uhr. Ludwig XIV. nicht.\r\n\r\nEnde.", "de"),
    ("M. Dupont arrive. « Où ? » demande-t-il. Le 3. Non; c'est tout…", "fr-CA"),
    ("¿Dónde está el Sr. Pérez? ¡Aquí! En EE. UU. vive.\u2028Fin", "spa_Latn"),
    ("Karel IV. byl např. u Ing. Nováka. Dne 3. ledna 2020. Konec?\x0bAno.", "cs"),
    ("Это ул. Ленина. А. С. Пушкин и т. д. Да!Нет?  Конец", "ru"),
    ("Τι είναι; Δεν ξέρω. Ίσως; Ναι.", "el"),
    ("你好。我很好！“是吗？”他说。No. 5 是。\u3000再见，这是一个很长的句子，它没有空格。", "zh"),
    ("これは本です。それは？「はい。」と言った。Dr. Wuです", "ja"),
    ("यह एक वाक्य है। दूसरा? हाँ॥ क्षत्रिय", "hi"),
    ("ما هذا؟ لا أعرف. نعم، ربما؛ لا!", "ar"),
    ("นี่คือประโยค นี่อีกประโยคหนึ่ง", "th"),
    ("ይህ ነው። ሁለተኛ፧ አዎ።", "am"),
    ("1. Wash. 2. Dry (carefully). 3.\n10. a) b. c.\n(Dr. X.) [Yes.] 'No.' ...", "en"),
    ("a\0b. C\x01 d. \ufeffE. \u200bF. \ufffd G. e\u0301. É. \U0001f600 H! \U0001f468\u200d.", ""),
    ("http://a.org/?q=1! x@y.Z. 3.5 U.S.A. 5 p.m. ok", "en"),
    ("\xa0 a\u2003.\u3000B\u202f! \x85C\x1c. D\u1680. E", "en"),
    ("The " + "very long, " * 30 + "long; " * 20 + "end: " + "x" * 90 + " " + "語" * 60, "en"),
]  # fmt: skip

_PARTS = [
    *("a", "b", "A", "B", "Dr", "Nr", "z", "3", "12", "XIV", ".", ".", ".", "!", "?", ",", ";"),
    *(" ", " ", " ", "  ", "\n", "\r\n", "\t", "\xa0", "\u3000", "\u2028", "\x85", "\0", "\x1c"),
    *("。", "、", "語", "「", "」", "é", "e\u0301", "ß", "Я", "я", "א", "؟", "…", "–", "-", "\""),
    *("”", "“", "'", "(", ")", "\U0001f600", "\U0001f468\u200d\U0001f469", "\ufffd", "\u200b"),
    *("ǅ", "ª", "५", "²", "Ⅳ", "\u0300", "\ufeff", "क्ष", "กำ", "각", ":"),
]  # fmt: skip


def odd_texts(rng, count):
    """Texts of random parts that the rules of sentences look at."""
    return ["".join(rng.choices(_PARTS, k=rng.randrange(40))) for _ in range(count)]
