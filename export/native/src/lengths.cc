#include "lengths.h"

#include "failure.h"

namespace keras_transformer {
namespace {

bool is_count(const Json& row, const char* name) {
  const auto field = row.find(name);
  return field != row.end() && field->is_number_integer() && *field > 0;
}

// Whether a row of `lengths` has its three fields, and a length above that of the row before it.
bool is_next(const Json& row, const std::string& kind, int64_t last) {
  if (!row.is_object() || row.size() != 3) return false;
  if (!is_count(row, "source_length") || !is_count(row, "target_length")) return false;
  const auto length = row.at("source_length").get<int64_t>();
  return length > last && row.value("signature", Json()) == kind + "_" + std::to_string(length);
}

}  // namespace

std::vector<SourceLength> source_lengths(const Json& metadata, const std::string& kind,
                                         int32_t longest, const std::string& what) {
  const Json rows = metadata.value("lengths", Json::array());
  const Json has_open = metadata.value("open_length", Json(true));
  std::vector<int64_t> lengths = {0};
  bool are_rows = rows.is_array();
  for (size_t i = 0; are_rows && i < rows.size(); ++i) {
    are_rows = is_next(rows[i], kind, lengths.back());
    if (are_rows) lengths.push_back(rows[i].at("source_length").get<int64_t>());
  }
  if (!are_rows) {
    fail("in ", what, " `lengths` must list signatures with their `source_length` and ",
         "`target_length`, shortest first. Received: ", rows.dump(-1, ' ', true).substr(0, 100));
  }
  const int64_t last = lengths.back();
  const bool has_end = has_open == true || (last && last == longest);
  if (!has_open.is_boolean() || !has_end || last > longest) {
    fail("in ", what, " `lengths` must end at `max_source_length`, where `open_length` is false, ",
         "or before. Received: lengths up to ", last, ", max_source_length=", longest,
         ", open_length=", has_open.dump(-1, ' ', true).substr(0, 100));
  }
  std::vector<SourceLength> found;
  for (size_t i = 1; i < lengths.size(); ++i) {
    found.push_back({kind + "_" + std::to_string(lengths[i]), static_cast<int32_t>(lengths[i])});
  }
  if (has_open == true) found.push_back({kind, 0});
  return found;
}

}  // namespace keras_transformer
