"""Translations as they grow, token by token."""

import functools

import keras

from keras_transformer.decoding.compiled import compiled_steps
from keras_transformer.decoding.generation import source_limits, told_prefix
from keras_transformer.decoding.shortlist import candidate_inputs
from keras_transformer.decoding.shortlisted import CandidateCache, Shortlisted, candidates_of
from keras_transformer.decoding.token_search import TokenSearch


class TokenStream:
    """The tokens of one sentence, each as soon as it is known.

    Args:
        model: A `Transformer` or an `Ensemble`.
        search: `Greedy()` or `Sampling()` with one sample.
        prefix_ids: The tokens that each row begins with.
        shortlist: A `Shortlist`, or `None`.

    Raises:
        ValueError: for another search, which may drop the tokens that it has begun with.
    """

    def __init__(self, model, search, prefix_ids=(), shortlist=None):
        if not isinstance(search, TokenSearch) or search.beams != 1:
            raise ValueError(
                "a stream must have a search that takes no token back, `Greedy` or `Sampling` "
                f"with `n_best=1`. Received: {search}"
            )
        search.check_ids(model.config, model.config.target_size)
        self.eos_id = model.config.eos_id

        def loop_of(source_ids):
            limits, slots = source_limits(source_ids, search, model.config)
            inputs = dict(source_ids=source_ids, **told_prefix(prefix_ids, source_ids))
            chosen = candidate_inputs(shortlist, source_ids, model.config.pad_id)
            own = model
            if chosen:
                found = candidates_of(
                    config=model.config, prefix_ids=inputs.get("prefix_ids"), **chosen
                )
                own = Shortlisted(model, found)
                inputs = own.inputs(search, **inputs)
            step = functools.partial(own.step, beams=1)
            return own, search.loop(step, limits, slots, own.config, **inputs)

        def begin(source_ids):
            own, loop = loop_of(source_ids)
            cache = model.start(model.encode(source_ids), loop.slots, 1)
            return loop.start(cache if own is model else own.started(cache))

        def advance(source_ids, state):
            return loop_of(source_ids)[1].advance(state)

        self._begin, self._advance = compiled_steps(begin, advance, model)

    def __call__(self, source_ids):
        """(1, S) int32, pieces and EOS -> an iterator over int tokens, without EOS."""
        state = self._begin(source_ids)
        while not keras.ops.convert_to_numpy(state.finished)[0]:
            state = self._advance(source_ids, state)
            token = int(keras.ops.convert_to_numpy(state.token_ids)[0, 0])
            if isinstance(state.cache, CandidateCache):
                token = int(keras.ops.convert_to_numpy(state.cache.ids)[token])
            if token != self.eos_id:
                yield token
