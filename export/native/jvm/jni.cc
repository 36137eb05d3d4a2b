// The native methods of kerastransformer.Translator, over keras_transformer.h.

#include <jni.h>

#include <cstring>
#include <memory>
#include <vector>

#include "keras_transformer.h"

namespace {

constexpr const char* kClass = "kerastransformer/Translator";

// The bytes of an array, which must not be null.
std::vector<char> bytes_of(JNIEnv* env, jbyteArray array) {
  std::vector<char> bytes(static_cast<size_t>(env->GetArrayLength(array)));
  env->GetByteArrayRegion(array, 0, static_cast<jsize>(bytes.size()),
                          reinterpret_cast<jbyte*>(bytes.data()));
  return bytes;
}

// nullptr where memory is short: an exception is pending then.
jbyteArray array_of(JNIEnv* env, const char* bytes, size_t size) {
  jbyteArray array = env->NewByteArray(static_cast<jsize>(size));
  if (array) {
    env->SetByteArrayRegion(array, 0, static_cast<jsize>(size),
                            reinterpret_cast<const jbyte*>(bytes));
  }
  return array;
}

kt_translator* translator_of(jlong handle) { return reinterpret_cast<kt_translator*>(handle); }

// A static method of the class; an exception is pending where this is nullptr.
jmethodID method(JNIEnv* env, jclass owner, const char* name, const char* signature) {
  return env->GetStaticMethodID(owner, name, signature);
}

// Throws what `kt_error` says.
void fail(JNIEnv* env) {
  const char* message = kt_error();
  jclass owner = env->FindClass(kClass);
  const jmethodID make = owner ? method(env, owner, "failure",
                                        "([B)Lkerastransformer/Translator$Failure;")
                               : nullptr;
  jbyteArray text = make ? array_of(env, message, std::strlen(message)) : nullptr;
  if (!text) return;
  auto failure = static_cast<jthrowable>(env->CallStaticObjectMethod(owner, make, text));
  if (!env->ExceptionCheck()) env->Throw(failure);
}

// Where the pieces of a stream go.
struct Taker {
  JNIEnv* env;
  jclass owner;
  jmethodID give;
  jobject piece;
};

int take(void* context, const char* piece, size_t size) {
  const auto& taker = *static_cast<Taker*>(context);
  jbyteArray bytes = array_of(taker.env, piece, size);
  if (!bytes) return 1;
  const bool goes_on =
      taker.env->CallStaticBooleanMethod(taker.owner, taker.give, taker.piece, bytes);
  taker.env->DeleteLocalRef(bytes);  // a stream may have more pieces than there is room for
  return taker.env->ExceptionCheck() || !goes_on;
}

bool add(JNIEnv* env, jclass owner, jmethodID method, jobject list, const kt_translation& each) {
  jbyteArray text = array_of(env, each.text, each.text_size);
  jintArray ids = text ? env->NewIntArray(static_cast<jsize>(each.id_count)) : nullptr;
  if (!ids) return false;
  env->SetIntArrayRegion(ids, 0, static_cast<jsize>(each.id_count), each.ids);
  env->CallStaticVoidMethod(owner, method, list, text, ids, each.score,
                            static_cast<jboolean>(each.is_cut));
  env->DeleteLocalRef(text);
  env->DeleteLocalRef(ids);
  return !env->ExceptionCheck();
}

// The answer to a text by a function such as `kt_translate`; nullptr with an exception pending.
template <class TextOf>
jbyteArray answer(JNIEnv* env, jlong handle, jbyteArray text, TextOf text_of) {
  const std::vector<char> bytes = bytes_of(env, text);
  size_t size = 0;
  const std::unique_ptr<char, void (*)(void*)> found(
      text_of(translator_of(handle), bytes.data(), bytes.size(), &size), kt_free);
  if (found) return array_of(env, found.get(), size);
  fail(env);
  return nullptr;
}

// The names of the classes, none where there are none; nullptr with an exception pending.
jobjectArray labels_of(JNIEnv* env, const kt_classes& found) {
  const size_t count = found.labels ? found.class_count : 0;
  jclass owner = env->FindClass("[B");
  jobjectArray names =
      owner ? env->NewObjectArray(static_cast<jsize>(count), owner, nullptr) : nullptr;
  for (size_t i = 0; names && i < count; ++i) {
    jbyteArray name = array_of(env, found.labels[i], std::strlen(found.labels[i]));
    if (!name) return nullptr;
    env->SetObjectArrayElement(names, static_cast<jsize>(i), name);
    env->DeleteLocalRef(name);
  }
  return names;
}

}  // namespace

extern "C" {

JNIEXPORT jstring JNICALL Java_kerastransformer_Translator_version(JNIEnv* env, jclass) {
  return env->NewStringUTF(kt_version());
}

JNIEXPORT jlong JNICALL Java_kerastransformer_Translator_open(JNIEnv* env, jclass,
                                                              jbyteArray folder, jint threads,
                                                              jbyteArray cache) {
  const std::vector<char> weight_cache = cache ? bytes_of(env, cache) : std::vector<char>();
  kt_translator* translator = kt_open_cached(bytes_of(env, folder).data(), threads,
                                             cache ? weight_cache.data() : nullptr);
  if (!translator) fail(env);
  return reinterpret_cast<jlong>(translator);
}

JNIEXPORT void JNICALL Java_kerastransformer_Translator_close(JNIEnv*, jclass, jlong handle) {
  kt_close(translator_of(handle));
}

JNIEXPORT jbyteArray JNICALL Java_kerastransformer_Translator_translate(JNIEnv* env, jclass,
                                                                        jlong handle,
                                                                        jbyteArray text) {
  return answer(env, handle, text, kt_translate);
}

JNIEXPORT jbyteArray JNICALL Java_kerastransformer_Translator_generate(JNIEnv* env, jclass,
                                                                       jlong handle,
                                                                       jbyteArray prompt) {
  return answer(env, handle, prompt, kt_generate);
}

JNIEXPORT jbyteArray JNICALL Java_kerastransformer_Translator_kind(JNIEnv* env, jclass,
                                                                   jlong handle) {
  const char* kind = kt_kind(translator_of(handle));
  if (kind) return array_of(env, kind, std::strlen(kind));
  fail(env);
  return nullptr;
}

JNIEXPORT jobject JNICALL Java_kerastransformer_Translator_classify(JNIEnv* env, jclass owner,
                                                                    jlong handle,
                                                                    jbyteArray text) {
  const jmethodID make =
      method(env, owner, "classes", "([FI[[BZ)Lkerastransformer/Translator$Classes;");
  if (!make) return nullptr;
  const std::vector<char> bytes = bytes_of(env, text);
  const std::unique_ptr<kt_classes, void (*)(kt_classes*)> found(
      kt_classify(translator_of(handle), bytes.data(), bytes.size()), kt_free_classes);
  if (!found) return fail(env), nullptr;
  const auto count = static_cast<jsize>(found->row_count * found->class_count);
  jfloatArray numbers = env->NewFloatArray(count);
  if (numbers) env->SetFloatArrayRegion(numbers, 0, count, found->probabilities);
  jobjectArray labels = numbers ? labels_of(env, *found) : nullptr;
  if (!labels) return nullptr;
  return env->CallStaticObjectMethod(owner, make, numbers, static_cast<jint>(found->row_count),
                                     labels, static_cast<jboolean>(found->is_by_token));
}

JNIEXPORT jbyteArray JNICALL Java_kerastransformer_Translator_translateText(JNIEnv* env, jclass,
                                                                            jlong handle,
                                                                            jbyteArray text,
                                                                            jbyteArray language) {
  const std::vector<char> tag = bytes_of(env, language);
  const auto translate = [&](kt_translator* translator, const char* bytes, size_t size,
                             size_t* result) {
    return kt_translate_text(translator, bytes, size, tag.data(), result);
  };
  return answer(env, handle, text, translate);
}

JNIEXPORT void JNICALL Java_kerastransformer_Translator_nBest(JNIEnv* env, jclass owner,
                                                              jlong handle, jbyteArray text,
                                                              jint count, jobject list) {
  const jmethodID adder = method(env, owner, "add", "(Ljava/util/List;[B[IFZ)V");
  if (!adder) return;
  const std::vector<char> bytes = bytes_of(env, text);
  const std::unique_ptr<kt_translations, void (*)(kt_translations*)> found(
      kt_n_best(translator_of(handle), bytes.data(), bytes.size(), count), kt_free_translations);
  if (!found) return fail(env);
  for (size_t i = 0; i < found->count; ++i) {
    if (!add(env, owner, adder, list, found->items[i])) return;
  }
}

JNIEXPORT void JNICALL Java_kerastransformer_Translator_stream(JNIEnv* env, jclass owner,
                                                               jlong handle, jbyteArray text,
                                                               jobject piece) {
  const jmethodID give = method(env, owner, "give", "(Lkerastransformer/Translator$Piece;[B)Z");
  if (!give) return;
  const std::vector<char> bytes = bytes_of(env, text);
  Taker taker = {env, owner, give, piece};
  if (kt_stream(translator_of(handle), bytes.data(), bytes.size(), take, &taker)) fail(env);
}
}
