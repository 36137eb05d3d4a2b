// An answer token by token, by the signatures `encode` and `decode_step`, of a prompt by the second.

#include <algorithm>
#include <optional>

#include "failure.h"
#include "translator.h"
#include "utf8.h"

namespace keras_transformer {
namespace {

constexpr const char* kEncode = "encode";
constexpr const char* kStep = "decode_step";
constexpr const char* kLimit = "limit";
constexpr const char* kToken = "token_ids";
constexpr const char* kPosition = "position";
constexpr const char* kNext = "next_ids";

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

int32_t number_in(const Buffer& buffer) {
  int32_t number;
  buffer.read(&number, 1);
  return number;
}

}  // namespace

// The tokens of one answer. Each call of `next` is one step of the decoder.
class Translator::Steps {
 public:
  // What is thrown here goes through the destructor, as the other constructor has returned.
  Steps(Translator& owner, const Ids& source_ids) : Steps(owner) {
    const std::lock_guard<std::mutex> lock(owner_.mutex_);
    buffers_.emplace();
    if (owner.continues()) begin_prompt(source_ids);
    else run_encoder(source_ids);
    if (limit_ > 0) make_decoder();
    // The last token is EOS then, whatever the step says.
    limit_ -= owner.folder_.has_forced_eos;
  }

  ~Steps() {
    const std::lock_guard<std::mutex> lock(owner_.mutex_);
    buffers_.reset();
    owner_.pages_.let_go();
  }

  // The next token that is no pad; none at the end.
  std::optional<int32_t> next() {
    const Tokenizer& target = *owner_.folder_.target;
    while (position_ < limit_) {
      const int32_t found = run_step();
      const auto place = static_cast<size_t>(position_++);
      const bool is_told = place < told_.size() && told_[place] != target.pad_id();
      token_id_ = is_told ? told_[place] : found;
      if (token_id_ == target.eos_id()) position_ = limit_;
      else if (token_id_ != target.pad_id()) return token_id_;
    }
    return std::nullopt;
  }

 private:
  explicit Steps(Translator& owner)
      : owner_(owner),
        step_(*owner.file_.signature(kStep)),
        token_id_(owner.folder_.target->bos_id()) {}

  struct Buffers {
    Buffer source, token, position;
    std::map<std::string, Buffer> encoded, rest;   // of `encode`; of a step, but for its state
    std::map<std::string, Buffer> states[2];       // read from one, written to the other, in turns
  };

  void begin_prompt(const Ids& ids) {
    told_ = ids;
    const auto pads = std::count(ids.begin(), ids.end(), owner_.folder_.source->pad_id());
    const auto tokens = static_cast<int64_t>(ids.size()) - pads;
    limit_ = static_cast<int32_t>(owner_.folder_.most_tokens(tokens));
  }

  void run_encoder(const Ids& source_ids) {
    told_ = owner_.folder_.target->prefix_ids();
    const Signature& encode = *owner_.file_.signature(kEncode);
    const auto length = static_cast<int32_t>(source_ids.size());
    buffers_->source = owner_.file_.buffer(encode.inputs.at(0), {length});
    buffers_->source.write(source_ids.data(), source_ids.size());
    std::vector<const Buffer*> outputs;
    for (const Tensor& output : encode.outputs) {
      Buffer& buffer = buffers_->encoded[output.name];
      buffer = owner_.file_.buffer(output, {length});
      outputs.push_back(&buffer);
    }
    owner_.file_.run(encode, {&buffers_->source}, outputs);
    limit_ = number_in(buffers_->encoded.at(kLimit));
  }

  // The state begins as zeros: what `encode` does not give and a step gives back.
  void make_decoder() {
    for (const Tensor& input : step_.inputs) {
      if (input.name == kToken) buffers_->token = owner_.file_.buffer(input, {1});
      else if (input.name == kPosition) buffers_->position = owner_.file_.buffer(input, {1});
      else if (!buffers_->encoded.count(input.name)) {
        if (!step_.output(input.name)) fail("`", kStep, "` must give back `", input.name, "`");
        for (auto& state : buffers_->states) {
          Buffer& buffer = state[input.name] = owner_.file_.buffer(input, {limit_});
          buffer.write(nullptr, 0);
        }
      }
    }
    for (const Tensor& output : step_.outputs) {
      if (!buffers_->states[0].count(output.name)) {
        buffers_->rest[output.name] = owner_.file_.buffer(output, {1});
      }
    }
  }

  int32_t run_step() {
    const std::lock_guard<std::mutex> lock(owner_.mutex_);
    buffers_->token.write(&token_id_, 1);
    buffers_->position.write(&position_, 1);
    const auto& state = buffers_->states[position_ % 2];
    const auto& new_state = buffers_->states[1 - position_ % 2];
    std::vector<const Buffer*> inputs, outputs;
    for (const auto& [name, type] : step_.inputs) {
      if (name == kToken) inputs.push_back(&buffers_->token);
      else if (name == kPosition) inputs.push_back(&buffers_->position);
      else inputs.push_back(state.count(name) ? &state.at(name) : &buffers_->encoded.at(name));
    }
    for (const auto& [name, type] : step_.outputs) {
      outputs.push_back(new_state.count(name) ? &new_state.at(name) : &buffers_->rest.at(name));
    }
    owner_.file_.run(step_, inputs, outputs);
    return number_in(buffers_->rest.at(kNext));
  }

  Translator& owner_;
  const Signature& step_;
  std::optional<Buffers> buffers_;
  Ids told_;  // the tokens at the start that are not the model's to choose
  int32_t limit_ = 0, position_ = 0, token_id_;
};

void Translator::check_steps() const {
  if (continues()) return check_steps_of_prompts();
  const Signature* encode = file_.signature(kEncode);
  const Signature* step = file_.signature(kStep);
  const bool is_there = encode && step && encode->inputs.size() == 1 && encode->output(kLimit) &&
                        step->output(kNext) && step->input(kToken) && step->input(kPosition);
  if (!is_there) {
    fail("a stream must have a file of a greedy search with the signatures 'encode' and ",
         "'decode_step': export with `Greedy()` and `signatures=SIGNATURES`. ",
         "Received: a file without them");
  }
  for (const Tensor& output : encode->outputs) {
    if (!starts_with(output.name, "cache_")) continue;
    fail("`encode` must not give caches, which LiteRT's C interface writes nothing to: export the ",
         "model again. Received: `", output.name, "`");
  }
}

void Translator::check_steps_of_prompts() const {
  const Signature* step = file_.signature(kStep);
  if (!step || !step->output(kNext) || !step->input(kToken) || !step->input(kPosition)) {
    fail("a stream must have a file of a greedy search with the signature 'decode_step': export ",
         "with `Greedy()` and `signatures=LANGUAGE_MODEL_SIGNATURES`. ",
         "Received: a file without it");
  }
}

void Translator::stream(std::string_view text, const TakePiece& take) {
  if (!continues()) check_kind("translate");
  check_steps();
  const Ids source_ids = encode(text);
  check_source(source_ids);
  if (source_ids.empty() && !continues()) return;
  Steps steps(*this, source_ids);
  Ids ids;
  std::string given;
  while (const auto id = steps.next()) {
    ids.push_back(*id);
    const std::string all = decode(ids);
    const std::string_view known = settled(all);
    if (!starts_with(known, given) || known.size() == given.size()) continue;
    if (!take(known.substr(given.size()))) return;
    given = known;
  }
  const std::string all = decode(ids);
  if (!starts_with(all, given)) {
    fail("the text of more tokens must begin with the text of fewer, to be streamed. Received: ",
         given, ", then ", all);
  }
  if (all.size() > given.size()) take(std::string_view(all).substr(given.size()));
}

}  // namespace keras_transformer
