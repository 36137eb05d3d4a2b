"""What `translate` takes: lines, JSON lines, and with `--text` texts of many sentences."""

from keras_transformer.command.inputs import write_out
from keras_transformer_runner.lines import check_file, read_text


def file_format(arguments):
    """The `FileFormat` of --input and --output."""
    from keras_transformer.translation.files import FileFormat

    return FileFormat(
        format=arguments.format,
        source_key=arguments.source_key,
        n_best=arguments.n_best,
        too_long=arguments.too_long,
        whole_texts=arguments.whole_texts,
        language=arguments.language,
    )


def is_one_text(arguments):
    """Whether the input is one text, not one a line."""
    return arguments.whole_texts and arguments.format == "lines"


def check_whole(arguments):
    """Raises what can be known of `--text` before TensorFlow is imported."""
    if arguments.whole_texts:
        from keras_transformer_runner.sentences import check_language

        check_language(arguments.language)
        if not arguments.text:
            check_file(arguments.input or "-")


def print_translated(arguments, make_translator):
    """Prints the translation of what is given as one text, or of each TEXT as one."""
    texts = arguments.text or [read_text(arguments.input or "-")]
    translator = make_translator()
    for text in texts:
        made = translator.translate_text(text, language=arguments.language)
        write_out(made + "\n" * bool(arguments.text))


def translate_named(arguments, translator):
    """Translates the file that is one text; returns how many characters it had."""
    from keras_transformer.translation.whole_texts import translate_text_file

    return translate_text_file(
        translator,
        arguments.input,
        arguments.output,
        language=arguments.language,
        lock=False,
    )
