#include "record.h"

#include <charconv>
#include <cstdlib>

#include "failure.h"
#include "sha256.h"

namespace keras_transformer {
namespace {

constexpr int kDeepest = 100;  // of arrays and objects within each other
constexpr int64_t kLargest = INT32_MAX;
constexpr const char* kSeal = "record_sha256";

// A number as Python's `repr` writes it: the shortest digits that give it back.
std::string python_number(double value) {
  char text[400];
  auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  const std::string scientific(text, end);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
  const std::string fixed(text, end);
  return fixed.find('.') == fixed.npos ? fixed + ".0" : fixed;
}

// What Python's `json.dumps(value, sort_keys=True)` writes.
std::string python_dump(const Json& value) {
  std::string text, comma;
  if (value.is_object()) {
    for (const auto& [name, each] : value.items()) {  // which are in order
      text += comma + Json(name).dump(-1, ' ', true) + ": " + python_dump(each);
      comma = ", ";
    }
    return "{" + text + "}";
  }
  if (value.is_array()) {
    for (const auto& each : value) {
      text += comma + python_dump(each);
      comma = ", ";
    }
    return "[" + text + "]";
  }
  return value.is_number_float() ? python_number(value.get<double>()) : value.dump(-1, ' ', true);
}

[[noreturn]] void wrong(const Json& record, const char* name, const std::string& what,
                        const char* rule) {
  const auto field = record.find(name);
  fail("in ", what, " `", name, "` must be ", rule, ". Received: ",
       field == record.end() ? "no such field" : field->dump(-1, ' ', true).substr(0, 100));
}

bool is_count(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= kLargest;
}

bool is_missing(const Json& record, const char* name) {
  const auto field = record.find(name);
  return field == record.end() || field->is_null();
}

}  // namespace

Json parse_record(const std::string& content, const std::string& what) {
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) fail(what, " must be a record in JSON. Received: one nested too deeply");
    return true;
  };
  // Which the parser would take for the end, and pass over.
  if (content.find('\0') != content.npos || content.rfind("\xEF\xBB\xBF", 0) == 0) {
    fail(what, " must be a record in JSON. Received: a NUL or a byte order mark");
  }
  Json record;
  try {
    record = Json::parse(content, check_depth);
  } catch (const Json::exception& error) {
    fail(what, " must be a record in JSON. Received: ", error.what());
  }
  if (!record.is_object()) fail(what, " must be an object. Received: ", record.type_name());
  return record;
}

int32_t count_field(const Json& record, const char* name, const std::string& what,
                    std::optional<int32_t> missing) {
  if (missing && is_missing(record, name)) return *missing;
  const auto field = record.find(name);
  if (field == record.end() || !is_count(*field)) {
    wrong(record, name, what, "an integer in [0, 2^31)");
  }
  return field->get<int32_t>();
}

std::string string_field(const Json& record, const char* name, const std::string& what) {
  const auto field = record.find(name);
  if (field == record.end() || !field->is_string()) wrong(record, name, what, "a string");
  return field->get<std::string>();
}

bool bool_field(const Json& record, const char* name, const std::string& what, bool missing) {
  const auto field = record.find(name);
  if (field == record.end()) return missing;
  if (!field->is_boolean()) wrong(record, name, what, "true or false");
  return field->get<bool>();
}

std::vector<int32_t> ids_field(const Json& record, const char* name, const std::string& what) {
  std::vector<int32_t> ids;
  const auto field = record.find(name);
  if (field == record.end()) return ids;
  if (!field->is_array()) wrong(record, name, what, "a list of ids");
  for (const auto& each : *field) {
    if (!is_count(each)) wrong(record, name, what, "a list of integers in [0, 2^31)");
    ids.push_back(each.get<int32_t>());
  }
  return ids;
}

void check_seal(const Json& record, const std::string& what) {
  const auto seal = record.find(kSeal);
  if (seal == record.end()) return;
  Json fields = record;
  fields.erase(kSeal);
  const std::string content = python_dump(fields);
  Sha256 digest;
  digest.update(content.data(), content.size());
  const std::string expected = digest.hexadecimal();
  if (*seal != expected) {
    fail(what, " must be as it was written: one of its fields was changed. Received: ", kSeal, " ",
         seal->dump(-1, ' ', true).substr(0, 100), ", expected ", expected);
  }
}

}  // namespace keras_transformer
