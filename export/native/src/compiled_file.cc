#include "compiled_file.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "failure.h"

namespace keras_transformer {
namespace {

void check(LiteRtStatus status, const char* what) {
  if (status) {
    fail("model.tflite must be a model that this version of LiteRT can run. Received: status ",
         status, " of ", what);
  }
}

// Has glibc keep what an answer frees for the next one. At first it gives all but 128 KiB back to the
// system, and learns to keep more from the blocks that are freed, most from one of 32 MiB, whose
// pages are not touched here. It heeds this only where nobody has told it otherwise.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr size_t kLargest = (size_t{32} << 20) - (size_t{8} << 10);
  void* volatile block = std::malloc(kLargest);  // volatile: or the compiler leaves both out
  std::free(block);
#endif
}

LiteRtEnvOption int_option(int tag, int64_t value) {
  LiteRtEnvOption option = {};
  option.tag = tag;
  option.value.type = kLiteRtAnyTypeInt;
  option.value.int_value = value;
  return option;
}

LiteRtEnvironment new_environment() {
  keep_freed_memory();
  // Without the first, LiteRT looks for other processors and maps a library for each.
  const LiteRtEnvOption options[] = {
      int_option(kLiteRtEnvOptionTagAutoRegisterAccelerators, kLiteRtHwAcceleratorCpu),
      int_option(kLiteRtEnvOptionTagMinLoggerSeverity, kLiteRtLogSeverityError)};
  LiteRtEnvironment environment;
  check(LiteRtCreateEnvironment(2, options, &environment), "LiteRtCreateEnvironment");
  return environment;
}

Owned<LiteRtOptions, LiteRtDestroyOptions> new_options(int num_threads,
                                                       const std::string& packed_weights) {
  LiteRtOptions made;
  check(LiteRtCreateOptions(&made), "LiteRtCreateOptions");
  Owned<LiteRtOptions, LiteRtDestroyOptions> options(made);
  check(LiteRtSetOptionsHardwareAccelerators(made, kLiteRtHwAcceleratorCpu),
        "LiteRtSetOptionsHardwareAccelerators");
  // LiteRT reads lines of TOML here, and frees them.
  std::string lines = "num_threads = " + std::to_string(num_threads) + "\n";
  if (!packed_weights.empty()) lines += "weight_cache_file_path = \"" + packed_weights + "\"\n";
  char* settings = strdup(lines.c_str());
  if (!settings) throw std::bad_alloc();
  LiteRtOpaqueOptions cpu;
  check(LiteRtCreateOpaqueOptions("xnnpack", settings, std::free, &cpu),
        "LiteRtCreateOpaqueOptions");
  check(LiteRtAddOpaqueOptions(made, cpu), "LiteRtAddOpaqueOptions");
  return options;
}

using NameOf = LiteRtStatus (*)(LiteRtSignature, size_t, const char**);
using TensorOf = LiteRtStatus (*)(LiteRtSignature, const char*, LiteRtTensor*);

std::vector<Tensor> tensors(LiteRtSignature signature, size_t count, NameOf name_of,
                            TensorOf tensor_of) {
  std::vector<Tensor> found;
  for (size_t index = 0; index < count; ++index) {
    const char* name;
    LiteRtTensor tensor;
    LiteRtRankedTensorType type = {};
    check(name_of(signature, index, &name), "a tensor's name");
    check(tensor_of(signature, name, &tensor), "a tensor's name");
    check(LiteRtGetRankedTensorType(tensor, &type), "LiteRtGetRankedTensorType");
    found.push_back({name, type});
  }
  return found;
}

const Tensor* named(const std::vector<Tensor>& tensors, const std::string& wanted) {
  const auto is_wanted = [&](const Tensor& tensor) { return tensor.name == wanted; };
  const auto found = std::find_if(tensors.begin(), tensors.end(), is_wanted);
  return found == tensors.end() ? nullptr : &*found;
}

// Memory of a buffer, for as long as this lives.
class Locked {
 public:
  Locked(LiteRtTensorBuffer buffer, int mode) : buffer_(buffer) {
    check(LiteRtLockTensorBuffer(buffer, &memory_, mode), "LiteRtLockTensorBuffer");
  }
  ~Locked() { LiteRtUnlockTensorBuffer(buffer_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  char* memory() const { return static_cast<char*>(memory_); }

 private:
  LiteRtTensorBuffer buffer_;
  void* memory_ = nullptr;
};

std::vector<LiteRtTensorBuffer> handles(const std::vector<const Buffer*>& buffers) {
  std::vector<LiteRtTensorBuffer> found;
  for (const Buffer* buffer : buffers) found.push_back(buffer->handle());
  return found;
}

}  // namespace

const Tensor* Signature::input(const std::string& wanted) const { return named(inputs, wanted); }

const Tensor* Signature::output(const std::string& wanted) const { return named(outputs, wanted); }

void Buffer::write(const void* numbers, size_t count) {
  const Locked locked(handle(), kLiteRtTensorBufferLockModeWrite);
  if (count) std::memcpy(locked.memory(), numbers, 4 * count);
  std::memset(locked.memory() + 4 * count, 0, 4 * (count_ - count));
}

void Buffer::read(void* numbers, size_t count) const {
  const Locked locked(handle(), kLiteRtTensorBufferLockModeRead);
  if (count) std::memcpy(numbers, locked.memory(), 4 * count);
}

CompiledFile::CompiledFile(const File& file, int num_threads, const std::string& packed_weights)
    : environment_(new_environment()) {
  LiteRtModel model;
  check(LiteRtCreateModelFromFd(environment_.get(), file.descriptor(), 0, file.size(), &model),
        "LiteRtCreateModelFromFd");
  model_.reset(model);
  read_signatures();
  const auto options = new_options(num_threads, packed_weights);
  LiteRtCompiledModel compiled;
  check(LiteRtCreateCompiledModel(environment_.get(), model, options.get(), &compiled),
        "LiteRtCreateCompiledModel");
  compiled_.reset(compiled);
}

void CompiledFile::read_signatures() {
  size_t count;
  check(LiteRtGetNumModelSignatures(model_.get(), &count), "LiteRtGetNumModelSignatures");
  for (size_t index = 0; index < count; ++index) {
    LiteRtSignature signature;
    const char* name;
    size_t inputs, outputs;
    check(LiteRtGetModelSignature(model_.get(), index, &signature), "LiteRtGetModelSignature");
    check(LiteRtGetSignatureKey(signature, &name), "LiteRtGetSignatureKey");
    check(LiteRtGetNumSignatureInputs(signature, &inputs), "LiteRtGetNumSignatureInputs");
    check(LiteRtGetNumSignatureOutputs(signature, &outputs), "LiteRtGetNumSignatureOutputs");
    signatures_.push_back({index, name,
                           tensors(signature, inputs, LiteRtGetSignatureInputName,
                                   LiteRtGetSignatureInputTensor),
                           tensors(signature, outputs, LiteRtGetSignatureOutputName,
                                   LiteRtGetSignatureOutputTensor)});
  }
}

const Signature* CompiledFile::signature(const std::string& name) const {
  const auto is_wanted = [&](const Signature& signature) { return signature.name == name; };
  const auto found = std::find_if(signatures_.begin(), signatures_.end(), is_wanted);
  return found == signatures_.end() ? nullptr : &*found;
}

Buffer CompiledFile::buffer(const Tensor& tensor, const std::vector<int32_t>& open_axes,
                            size_t beyond) {
  LiteRtRankedTensorType type = tensor.type;
  if (type.element_type != kLiteRtElementTypeFloat32 &&
      type.element_type != kLiteRtElementTypeInt32) {
    fail("tensors of model.tflite must be float32 or int32. Received: `", tensor.name,
         "` of type ", type.element_type);
  }
  size_t count = 1, open = 0;
  for (unsigned axis = 0; axis < type.layout.rank; ++axis) {
    int32_t& length = type.layout.dimensions[axis];
    if (length < 0 && open < open_axes.size()) length = open_axes[open++];
    if (length < 1 || count > INT32_MAX / static_cast<size_t>(length)) {
      fail("a tensor of model.tflite must have 1 to 2^31 numbers. Received: `", tensor.name,
           "` with an axis of ", length);
    }
    count *= static_cast<size_t>(length);
  }
  LiteRtTensorBuffer made;
  check(LiteRtCreateManagedTensorBuffer(environment_.get(), kLiteRtTensorBufferTypeHostMemory,
                                        &type, 4 * count + beyond, &made),
        "LiteRtCreateManagedTensorBuffer");
  Buffer buffer;
  buffer.owned_.reset(made);
  buffer.count_ = count;
  return buffer;
}

void CompiledFile::resize(const Signature& signature, size_t input,
                          const std::vector<int32_t>& shape) {
  check(LiteRtCompiledModelResizeInputTensor(compiled_.get(), signature.index, input, shape.data(),
                                             shape.size()),
        "LiteRtCompiledModelResizeInputTensor");
}

void CompiledFile::run(const Signature& signature, const std::vector<const Buffer*>& inputs,
                       const std::vector<const Buffer*>& outputs) {
  auto given = handles(inputs), wanted = handles(outputs);
  check(LiteRtRunCompiledModel(compiled_.get(), signature.index, given.size(), given.data(),
                               wanted.size(), wanted.data()),
        "LiteRtRunCompiledModel");
}

std::vector<size_t> CompiledFile::written(const Signature& signature) {
  std::vector<LiteRtLayout> layouts(signature.outputs.size());
  // With `update_allocation` LiteRT would allocate again, and give what was before the run.
  check(LiteRtGetCompiledModelOutputTensorLayouts(compiled_.get(), signature.index, layouts.size(),
                                                  layouts.data(), false),
        "LiteRtGetCompiledModelOutputTensorLayouts");
  std::vector<size_t> counts;
  for (const LiteRtLayout& layout : layouts) {
    size_t count = 1;
    for (unsigned axis = 0; axis < layout.rank; ++axis) {
      count *= static_cast<size_t>(std::max(0, layout.dimensions[axis]));
    }
    counts.push_back(count);
  }
  return counts;
}

}  // namespace keras_transformer
