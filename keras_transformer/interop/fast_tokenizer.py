"""The pieces of a `tokenizer.json`, as the SentencePiece model that it was made from."""


def read_pieces(content):
    raise ValueError("a tokenizer's folder must hold its SentencePiece model beside this file")
