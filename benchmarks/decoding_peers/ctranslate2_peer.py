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

    def decode(source_ids, beams, longest):
        # The model adds EOS.
        ends = (task.pad_id, task.eos_id)
        sources = [[str(token) for token in row if token not in ends] for row in source_ids]
        results = translator.translate_batch(
            sources,
            beam_size=beams,
            length_penalty=task.length_penalty,
            max_decoding_length=longest,
            min_decoding_length=task.exact_length or 0,
            max_batch_size=-(-len(sources) // settings.inter_threads),  # a part for each worker
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]

    return worker.Decoder({"ctranslate2": ctranslate2.__version__}, decode)


if __name__ == "__main__":
    worker.serve(make_decoder)
