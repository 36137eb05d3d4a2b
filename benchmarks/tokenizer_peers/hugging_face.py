"""The ids and texts of Hugging Face's tokenizers, in an interpreter that has transformers.

    python hugging_face.py < orders.json > answers.json

Each order has a class, a folder, arguments, and lines of both sides; its answer has the ids and the
text of the target's ids. `save` names a folder to write the tokenizer to, as transformers does now.
"""

import contextlib
import json
import sys
import warnings

warnings.simplefilter("ignore")


def answer(order):
    import transformers

    transformers.logging.set_verbosity_error()
    kind = getattr(transformers, order["class"])
    tokenizer = kind.from_pretrained(order["folder"], **order["arguments"])
    if order.get("languages"):  # newer versions give NLLB's no ids of their own
        tokens = [transformers.AddedToken(name, special=True) for name in order["languages"]]
        tokenizer.add_tokens(tokens, special_tokens=True)
        tokenizer.src_lang, tokenizer.tgt_lang = tokenizer.src_lang, tokenizer.tgt_lang
    source = [tokenizer(line)["input_ids"] for line in order["source"]]
    target = [tokenizer(text_target=line)["input_ids"] for line in order["target"]]
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in target]
    if order.get("save"):
        tokenizer.save_pretrained(order["save"])
    return {"source": source, "target": target, "texts": texts, "version": transformers.__version__}


if __name__ == "__main__":
    orders = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        answers = [answer(order) for order in orders]
    json.dump(answers, sys.stdout)
