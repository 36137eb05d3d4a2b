// A .tflite file that LiteRT has compiled for this processor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "files.h"
#include "litert.h"

namespace keras_transformer {

// An object of LiteRT's that is destroyed with this.
template <class T, void (*Destroy)(T)>
struct Destroyer {
  using pointer = T;
  void operator()(T object) const { Destroy(object); }
};
template <class T, void (*Destroy)(T)>
using Owned = std::unique_ptr<T, Destroyer<T, Destroy>>;

// An input or an output of a signature. An axis of any length is -1 in its type.
struct Tensor {
  std::string name;
  LiteRtRankedTensorType type;
};

struct Signature {
  size_t index;
  std::string name;
  std::vector<Tensor> inputs, outputs;  // in the order of a run

  const Tensor* input(const std::string& wanted) const;
  const Tensor* output(const std::string& wanted) const;
};

// Memory for a tensor of numbers of 32 bits.
class Buffer {
 public:
  Buffer() = default;

  LiteRtTensorBuffer handle() const { return owned_.get(); }
  size_t count() const { return count_; }
  void write(const void* numbers, size_t count);  // zeros behind them
  void read(void* numbers, size_t count) const;

 private:
  friend class CompiledFile;
  Owned<LiteRtTensorBuffer, LiteRtDestroyTensorBuffer> owned_;
  size_t count_ = 0;
};

// Not safe for threads. Everything made from it must be destroyed before it.
class CompiledFile {
 public:
  // `packed_weights` is the path of a file for them, or empty.
  CompiledFile(const File& file, int num_threads, const std::string& packed_weights = {});

  const Signature* signature(const std::string& name) const;  // nullptr if there is none
  const std::vector<Signature>& signatures() const { return signatures_; }

  // Memory for a tensor whose open axes have these lengths, not zeroed. `beyond`: bytes behind it
  // that may be written without harm; they take no memory as long as they are not.
  Buffer buffer(const Tensor& tensor, const std::vector<int32_t>& open_axes, size_t beyond = 0);
  void resize(const Signature& signature, size_t input, const std::vector<int32_t>& shape);
  void run(const Signature& signature, const std::vector<const Buffer*>& inputs,
           const std::vector<const Buffer*>& outputs);
  // How many numbers the last run has written to each output.
  std::vector<size_t> written(const Signature& signature);

 private:
  void read_signatures();

  // Destroyed in reverse order: LiteRT crashes where a model outlives its environment.
  Owned<LiteRtEnvironment, LiteRtDestroyEnvironment> environment_;
  Owned<LiteRtModel, LiteRtDestroyModel> model_;
  Owned<LiteRtCompiledModel, LiteRtDestroyCompiledModel> compiled_;
  std::vector<Signature> signatures_;
};

}  // namespace keras_transformer
