"""The section of an experiment file that says how to translate."""

import dataclasses

from keras_transformer.experiment.sections import check_choice, check_least


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingSection:
    """`[decoding]`: how the trained model translates.

    Attributes:
        strategy: `"greedy"`, `"beam"` or `"sampling"`; by `beam_size` when left out.
        max_length: Most tokens of a translation; no limit of its own when left out.
        extra_length: It may be this many tokens longer than its source.
        min_length, no_repeat_ngram, repetition_penalty: Of every search.
        beam_size: Hypotheses of `BeamSearch`; 1 for `Greedy`, where no strategy is named.
        length_penalty, coverage_penalty, stopping: Of `BeamSearch`; its own when left out.
        temperature, top_k, top_p, min_p, seed: Of `Sampling`; its own when left out.
    """

    strategy: str | None = None
    max_length: int | None = None
    extra_length: int = 50
    min_length: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    beam_size: int = 1
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    stopping: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None

    PATHS = ()
    COMMON = ("max_length", "extra_length", "min_length", "no_repeat_ngram", "repetition_penalty")
    OF_STRATEGY = {
        "greedy": (),
        "beam": ("length_penalty", "coverage_penalty", "stopping"),
        "sampling": ("temperature", "top_k", "top_p", "min_p", "seed"),
    }

    def __post_init__(self):
        check_least(self, max_length=1, extra_length=1, beam_size=1)
        if self.strategy is not None:
            check_choice("decoding.strategy", self.strategy, tuple(self.OF_STRATEGY))
        if self.beam_size > 1 and self.strategy_name != "beam":
            raise ValueError(
                '`beam_size` above 1 is for `strategy` "beam". Received: '
                f"beam_size={self.beam_size}, strategy={self.strategy!r}"
            )
        for name, options in self.OF_STRATEGY.items():
            given = [option for option in options if getattr(self, option) is not None]
            # `length_penalty` alone changes nothing: `--beam-size` may come later.
            given = [option for option in given if option != "length_penalty"]
            if given and name != self.strategy_name:
                raise ValueError(
                    f"`{given[0]}` is for `strategy` {name!r}. Received: "
                    f"{given[0]}={getattr(self, given[0])!r}, strategy={self.strategy_name!r}"
                )

    @property
    def strategy_name(self):
        """The strategy's name, also where it is left out."""
        return self.strategy or ("beam" if self.beam_size > 1 else "greedy")

    def search(self):
        """The search strategy.

        Raises:
            ValueError: if a value is none that the strategy takes.
        """
        from keras_transformer.decoding import BeamSearch, Greedy, Sampling

        searches = {"greedy": Greedy, "beam": BeamSearch, "sampling": Sampling}
        return searches[self.strategy_name](**self.options)

    @property
    def options(self):
        """The arguments of the strategy that are given."""
        names = (*self.COMMON, *self.OF_STRATEGY[self.strategy_name])
        options = {name: getattr(self, name) for name in names}
        if self.strategy_name == "beam":
            options["beam_size"] = self.beam_size
        return {name: value for name, value in options.items() if value is not None}
