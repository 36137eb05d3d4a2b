// The signatures that answer a whole source, as the metadata list them:
// keras_transformer_runner/lengths.py in C++.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "record.h"

namespace keras_transformer {

struct SourceLength {
  std::string signature;
  int32_t tokens;  // of a source, shorter ones with pads behind them; 0 for one of any length
};

// Those of fixed lengths first, the shortest before the others. Fails unless `metadata` are what an
// export writes of a model that does `kind`, for sources of up to `longest` tokens; `what` names
// them in errors.
std::vector<SourceLength> source_lengths(const Json& metadata, const std::string& kind,
                                         int32_t longest, const std::string& what);

}  // namespace keras_transformer
