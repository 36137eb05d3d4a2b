// The functions of keras_transformer.h. No exception leaves them.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "failure.h"
#include "keras_transformer.h"
#include "translator.h"
#include "utf8.h"

using keras_transformer::fail;
using keras_transformer::Ids;

struct kt_translator : keras_transformer::Translator {
  using Translator::Translator;
};

namespace {

constexpr int kMostThreads = 256;  // LiteRT starts as many as it is told to

thread_local std::string last_error;

void remember(const char* text) noexcept {
  try {
    last_error = keras_transformer::repaired(text);
  } catch (...) {
    last_error.clear();
  }
}

// What `body` gives, or `failure` where it throws.
template <class Result, class Body>
Result guarded(Result failure, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    remember("there must be enough memory. Received: std::bad_alloc");
  } catch (const std::exception& error) {
    remember(error.what());
  } catch (...) {
    remember("Received: an unknown error");
  }
  return failure;
}

template <class T>
T& given(T* pointer, const char* name) {
  if (!pointer) fail("`", name, "` must not be NULL. Received: NULL");
  return *pointer;
}

std::string_view text_of(const char* text, size_t size) {
  if (size) given(text, "text");
  return {text ? text : "", size};
}

void* memory(size_t size) {
  void* made = std::malloc(size ? size : 1);
  if (!made) throw std::bad_alloc();
  return made;
}

char* copy(const std::string& text, size_t* size) {
  auto* made = static_cast<char*>(memory(text.size() + 1));
  std::memcpy(made, text.c_str(), text.size() + 1);
  if (size) *size = text.size();
  return made;
}

int copy(const Ids& ids, int32_t* to, int capacity) {
  if (capacity < 0) fail("`capacity` must be at least 0. Received: ", capacity);
  const size_t count = std::min(ids.size(), static_cast<size_t>(capacity));
  if (count) std::memcpy(&given(to, "ids"), ids.data(), count * sizeof *to);
  return static_cast<int>(ids.size());
}

Ids ids_of(const int32_t* ids, int count) {
  if (count < 0) fail("`count` must be at least 0. Received: ", count);
  if (count) given(ids, "ids");
  return Ids(ids, ids + count);
}

struct FreeClasses {
  void operator()(kt_classes* made) const { kt_free_classes(made); }
};

kt_classes* copy(const keras_transformer::Classes& found) {
  std::unique_ptr<kt_classes, FreeClasses> made(
      static_cast<kt_classes*>(memory(sizeof(kt_classes))));
  *made = {nullptr, found.rows, found.probabilities.size() / found.rows, nullptr, found.is_by_token};
  const size_t size = found.probabilities.size() * sizeof(float);
  made->probabilities = static_cast<float*>(memory(size));
  std::memcpy(made->probabilities, found.probabilities.data(), size);
  if (found.labels.empty()) return made.release();
  made->labels = static_cast<char**>(memory(made->class_count * sizeof(char*)));
  std::fill_n(made->labels, made->class_count, nullptr);
  for (size_t i = 0; i < made->class_count; ++i) made->labels[i] = copy(found.labels[i], nullptr);
  return made.release();
}

kt_translations* copy(const std::vector<keras_transformer::Translation>& found) {
  struct Free {
    void operator()(kt_translations* made) const { kt_free_translations(made); }
  };
  std::unique_ptr<kt_translations, Free> made(
      static_cast<kt_translations*>(memory(sizeof(kt_translations))));
  *made = {nullptr, 0};
  made->items = static_cast<kt_translation*>(memory(found.size() * sizeof(kt_translation)));
  for (const auto& each : found) {
    kt_translation& item = made->items[made->count];
    item = {nullptr, 0, nullptr, each.ids.size(), each.score, each.is_cut};
    ++made->count;  // what is made of it is freed from here on
    item.text = copy(each.text, &item.text_size);
    item.ids = static_cast<int32_t*>(memory(each.ids.size() * sizeof(int32_t)));
    if (item.id_count) std::memcpy(item.ids, each.ids.data(), item.id_count * sizeof(int32_t));
  }
  return made.release();
}

}  // namespace

extern "C" {

const char* kt_version(void) { return KT_VERSION; }

const char* kt_error(void) { return last_error.c_str(); }

kt_translator* kt_open(const char* folder, int num_threads) {
  return kt_open_cached(folder, num_threads, nullptr);
}

kt_translator* kt_open_cached(const char* folder, int num_threads, const char* weight_cache) {
  return guarded<kt_translator*>(nullptr, [&] {
    given(folder, "folder");
    if (num_threads < 1 || num_threads > kMostThreads) {
      fail("`num_threads` must be in [1, ", kMostThreads, "]. Received: ", num_threads);
    }
    keras_transformer::open_standard_streams();
    std::optional<std::string> cache;
    if (weight_cache) cache = weight_cache;
    return new kt_translator(folder, num_threads, cache);
  });
}

void kt_close(kt_translator* translator) { delete translator; }

char* kt_translate(kt_translator* translator, const char* text, size_t size,
                   size_t* result_size) {
  return guarded<char*>(nullptr, [&] {
    return copy(given(translator, "translator").translate(text_of(text, size)), result_size);
  });
}

void kt_free(void* text) { std::free(text); }

char* kt_translate_text(kt_translator* translator, const char* text, size_t size,
                        const char* language, size_t* result_size) {
  return guarded<char*>(nullptr, [&] {
    auto& opened = given(translator, "translator");
    return copy(opened.translate_text(text_of(text, size), language ? language : ""), result_size);
  });
}

int kt_split_text(kt_translator* translator, const char* text, size_t size, const char* language,
                  kt_piece piece, void* context) {
  return guarded(-1, [&] {
    if (!piece) fail("`piece` must not be NULL. Received: NULL");
    auto& opened = given(translator, "translator");
    const auto found = opened.split(text_of(text, size), language ? language : "");
    for (size_t i = 0; i < found.gaps.size(); ++i) {
      const std::string& gap = found.gaps[i];
      if (piece(context, gap.data(), gap.size()) || i == found.sentences.size()) break;
      const std::string& sentence = found.sentences[i];
      if (piece(context, sentence.data(), sentence.size())) break;
    }
    return 0;
  });
}

kt_translations* kt_n_best(kt_translator* translator, const char* text, size_t size, int n_best) {
  return guarded<kt_translations*>(nullptr, [&] {
    return copy(given(translator, "translator").n_best(text_of(text, size), n_best));
  });
}

void kt_free_translations(kt_translations* translations) {
  if (!translations) return;
  for (size_t i = 0; i < translations->count; ++i) {
    std::free(translations->items[i].text);
    std::free(translations->items[i].ids);
  }
  std::free(translations->items);
  std::free(translations);
}

int kt_stream(kt_translator* translator, const char* text, size_t size, kt_piece piece,
              void* context) {
  return guarded(-1, [&] {
    if (!piece) fail("`piece` must not be NULL. Received: NULL");
    given(translator, "translator").stream(text_of(text, size), [&](std::string_view part) {
      return piece(context, part.data(), part.size()) == 0;
    });
    return 0;
  });
}

const char* kt_kind(kt_translator* translator) {
  return guarded<const char*>(nullptr, [&] { return given(translator, "translator").kind(); });
}

char* kt_generate(kt_translator* translator, const char* prompt, size_t size,
                  size_t* result_size) {
  return guarded<char*>(nullptr, [&] {
    return copy(given(translator, "translator").generate(text_of(prompt, size)), result_size);
  });
}

kt_classes* kt_classify(kt_translator* translator, const char* text, size_t size) {
  return guarded<kt_classes*>(nullptr, [&] {
    return copy(given(translator, "translator").classify(text_of(text, size)));
  });
}

void kt_free_classes(kt_classes* classes) {
  if (!classes) return;
  for (size_t i = 0; classes->labels && i < classes->class_count; ++i) {
    std::free(classes->labels[i]);
  }
  std::free(classes->labels);
  std::free(classes->probabilities);
  std::free(classes);
}

int kt_generate_ids(kt_translator* translator, const int32_t* prompt_ids, int count, int32_t* ids,
                    int capacity) {
  return guarded(-1, [&] {
    return copy(given(translator, "translator").generate_ids(ids_of(prompt_ids, count)), ids,
                capacity);
  });
}

kt_classes* kt_classify_ids(kt_translator* translator, const int32_t* source_ids, int count) {
  return guarded<kt_classes*>(nullptr, [&] {
    return copy(given(translator, "translator").classify_ids(ids_of(source_ids, count)));
  });
}

int kt_encode(kt_translator* translator, const char* text, size_t size, int32_t* ids,
              int capacity) {
  return guarded(-1, [&] {
    return copy(given(translator, "translator").encode(text_of(text, size)), ids, capacity);
  });
}

int kt_translate_ids(kt_translator* translator, const int32_t* source_ids, int count, int32_t* ids,
                     int capacity) {
  return guarded(-1, [&] {
    return copy(given(translator, "translator").translate_ids(ids_of(source_ids, count)), ids,
                capacity);
  });
}

char* kt_decode(kt_translator* translator, const int32_t* ids, int count, size_t* result_size) {
  return guarded<char*>(nullptr, [&] {
    return copy(given(translator, "translator").decode(ids_of(ids, count)), result_size);
  });
}
}
