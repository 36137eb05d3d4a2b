"""CTranslate2 with our weights. Its tokens are "0", "1" and so on: ids, written out."""

import worker


def make_decoder(task, settings, weights, folder):
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"),
        device="cpu",
        compute_type=settings.compute_type,
        inter_threads=settings.inter_threads,
        intra_threads=settings.intra_threads,
    )

    def start(source_ids, beams, longest):
        # The model adds EOS.
        ends = (task.pad_id, task.eos_id)
        return translator.translate_batch(
            [[str(token) for token in row if token not in ends] for row in source_ids],
            asynchronous=True,  # and whole: each of its workers takes a batch
            beam_size=beams,
            length_penalty=task.length_penalty,
            max_decoding_length=longest,
            min_decoding_length=task.exact_length or 0,
        )

    def decode(batches, beams, limits):
        started = [start(batch, beams, limit) for batch, limit in zip(batches, limits, strict=True)]
        return [
            [[int(token) for token in result.result().hypotheses[0]] for result in results]
            for results in started
        ]

    return worker.Decoder({"ctranslate2": ctranslate2.__version__}, decode)


if __name__ == "__main__":
    worker.serve(make_decoder)
