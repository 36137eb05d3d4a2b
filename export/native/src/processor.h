// What packed weights depend on beside the model.
#pragma once

#include <string>

namespace keras_transformer {

// The kind of the machine and digits for what XNNPACK chooses its kernels by, and with them the
// packing: "x86_64-0a1b2c3d".
std::string processor_name();

// Digits for this build of LiteRT, without reading all of it.
std::string runtime_name();

}  // namespace keras_transformer
