/* Translates with a folder that `keras-transformer export --to litert` wrote, or continues prompts,
 * or classifies: what its model is made for, see `kt_kind`. C99 and C++.
 *
 * Texts are UTF-8 with a size, as they may hold NUL. What is no UTF-8 is read as U+FFFD. All that a
 * function returns by pointer is the caller's, and freed by the function that is named there.
 *
 * Threads: a translator may be used from any thread and from several at once; calls take turns
 * while the model computes. `kt_close` must be the last call, when all others have returned.
 * Several translators do not know of each other.
 *
 * Errors: a function says so by its result; `kt_error` says what was wrong. No C++ exception leaves
 * this library. Where a pointer must not be NULL and is, that is an error too.
 */
#ifndef KERAS_TRANSFORMER_H
#define KERAS_TRANSFORMER_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define KT_API __attribute__((visibility("default")))
#else
#define KT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kt_translator kt_translator;

/* One answer to one text. */
typedef struct kt_translation {
  char* text; /* ends with a NUL that `text_size` does not count */
  size_t text_size;
  int32_t* ids; /* its tokens, EOS at the end unless it was cut */
  size_t id_count;
  float score; /* what the search ranks by */
  int is_cut;  /* 1 if the limit of the length has cut it: it has no EOS */
} kt_translation;

typedef struct kt_translations {
  kt_translation* items; /* best first */
  size_t count;
} kt_translations;

/* A piece of a text that grows: never empty, valid during the call. Another result than 0 ends the
 * stream. It may call every function but `kt_close` of the same translator. */
typedef int (*kt_piece)(void* context, const char* piece, size_t size);

/* The version of this library, such as "0.1.0". */
KT_API const char* kt_version(void);

/* What was wrong with the last call of this thread that failed; until its next one that fails. */
KT_API const char* kt_error(void);

/* Opens a folder once all its files are what the export wrote; NULL if not. The files must stay as
 * they are while it is open. One thread is fastest for one sentence at a time. `num_threads`: 1 to
 * 256. A closed standard stream leads to /dev/null from here on, as files would get its number. */
KT_API kt_translator* kt_open(const char* folder, int num_threads);

/* The same with packed weights in a file, which the first call writes into the folder
 * `weight_cache` (made if missing) and later ones map: the system can drop them, and share them
 * between processes. The answers are the same to the bit. The file is compared with a checksum, and
 * made again where it is damaged, by one process at a time. NULL is as `kt_open`. Linux and
 * Android. */
KT_API kt_translator* kt_open_cached(const char* folder, int num_threads,
                                     const char* weight_cache);
KT_API void kt_close(kt_translator* translator); /* NULL is fine */

/* The translation; NULL on failure. `result_size`, without the NUL at the end, may be NULL. */
KT_API char* kt_translate(kt_translator* translator, const char* text, size_t size,
                          size_t* result_size);
KT_API void kt_free(void* text); /* NULL is fine */

/* The translation of a text of several sentences, its line breaks and spaces kept; NULL on failure.
 * No text is too long. `language`, that of the text, is a tag such as "de", whose abbreviations end
 * no sentence; NULL or "" for none. docs/whole_texts.md is the rule. Needs a library that was built
 * with ICU. */
KT_API char* kt_translate_text(kt_translator* translator, const char* text, size_t size,
                               const char* language, size_t* result_size);
/* Gives what lies before the first sentence, the first sentence, what lies between it and the next,
 * and so on, at last what lies behind the last one; together they are the text. Only what does not
 * belong to a sentence may be empty. It returns what `kt_stream` does. */
KT_API int kt_split_text(kt_translator* translator, const char* text, size_t size,
                         const char* language, kt_piece piece, void* context);

/* The best `n_best` translations, all that the file gives for 0; NULL on failure. There are fewer
 * where the search finds fewer. The file must be of a search that gives scores. */
KT_API kt_translations* kt_n_best(kt_translator* translator, const char* text, size_t size,
                                  int n_best);
KT_API void kt_free_translations(kt_translations* translations); /* NULL is fine */

/* Gives the translation in pieces, each as soon as nothing can change it; together they are what
 * `kt_translate` gives. 0 at the end, also where `piece` has ended it, -1 on failure. The file must
 * be of a greedy search and have the signatures `encode` and `decode_step`. */
KT_API int kt_stream(kt_translator* translator, const char* text, size_t size, kt_piece piece,
                     void* context);

/* --- Language models and classifiers ------------------------------------------------------- */

/* What the model of the folder does: "translate", "generate" or "classify"; NULL on failure. A
 * function of another kind is an error. `kt_n_best` and `kt_stream` are of the first two: what they
 * give of a language model begins with the prompt, as what `kt_generate` gives. Its stream needs the
 * signature `decode_step`. */
KT_API const char* kt_kind(kt_translator* translator);

/* The text that begins with the prompt, which may be empty, and that a language model goes on with;
 * to be freed by `kt_free`; NULL on failure. */
KT_API char* kt_generate(kt_translator* translator, const char* prompt, size_t size,
                         size_t* result_size);

/* The probability of each class. */
typedef struct kt_classes {
  float* probabilities; /* `row_count` rows of `class_count` numbers, one row behind another */
  size_t row_count;     /* 1; by token as many as `kt_encode` gives */
  size_t class_count;
  char** labels; /* the name of each class; NULL where the folder has none */
  int is_by_token;
} kt_classes;

/* The classes of a text, or of its tokens; NULL on failure. */
KT_API kt_classes* kt_classify(kt_translator* translator, const char* text, size_t size);
KT_API void kt_free_classes(kt_classes* classes); /* NULL is fine */

/* For apps that look at tokens. Each returns how many ids there are, or -1; at most `capacity` of
 * them are written, to an `ids` that may be NULL where that is 0. */
KT_API int kt_encode(kt_translator* translator, const char* text, size_t size, int32_t* ids,
                     int capacity); /* with EOS at the end, but of a prompt */
KT_API int kt_translate_ids(kt_translator* translator, const int32_t* source_ids, int count,
                            int32_t* ids, int capacity); /* without EOS and pads */
KT_API int kt_generate_ids(kt_translator* translator, const int32_t* prompt_ids, int count,
                           int32_t* ids, int capacity); /* of prompt and all, without EOS and pads */
KT_API kt_classes* kt_classify_ids(kt_translator* translator, const int32_t* source_ids, int count);
/* The text of ids of an answer, to be freed by `kt_free`; NULL on failure. */
KT_API char* kt_decode(kt_translator* translator, const int32_t* ids, int count,
                       size_t* result_size);

#ifdef __cplusplus
}
#endif

#endif
