// Records in JSON: strict, and with the checksum of themselves that an export writes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace keras_transformer {

using Json = nlohmann::json;

// The JSON object in `content`; `what` names it in errors.
Json parse_record(const std::string& content, const std::string& what);

// A field that is an integer in [0, 2^31); without `missing` it must be there. null is missing.
int32_t count_field(const Json& record, const char* name, const std::string& what,
                    std::optional<int32_t> missing = std::nullopt);

std::string string_field(const Json& record, const char* name, const std::string& what);
bool bool_field(const Json& record, const char* name, const std::string& what, bool missing);
std::vector<int32_t> ids_field(const Json& record, const char* name, const std::string& what);

// Fails if a record has another checksum than its field `record_sha256` says. One without the field
// passes.
void check_seal(const Json& record, const std::string& what);

}  // namespace keras_transformer
