// Reading samples: gather the tokens, check them, derive everything else from them.
#include "data/gpt.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace rr::data {

namespace {

// Stands where a kept partial sample has no token; never seen outside (token 0, label 0, mask 0).
constexpr std::int64_t kPadding = -1;

// How a sample that does not exist is refused: by then the caller has gone wrong.
void check_index(std::int64_t index, std::int64_t size) {
  RR_CHECK(index >= 0 && index < size, fmt::format("sample {} of {}", index, size));
}

std::int64_t without_padding(std::int64_t token) { return token == kPadding ? 0 : token; }

}  // namespace

GptSamples::GptSamples(const plan::DataPlan& plan, std::unique_ptr<Corpus> corpus, Order order)
    : corpus_(std::move(corpus)),
      order_(std::move(order)),
      seq_length_(plan.seq_length),
      extra_tokens_(plan.add_extra_token ? 1 : 0),
      vocab_(plan.vocab),
      end_of_document_(plan.end_of_document),
      reset_position_ids_(plan.reset_position_ids),
      reset_attention_mask_(plan.reset_attention_mask),
      eod_mask_loss_(plan.eod_mask_loss) {}

std::int64_t GptSamples::size() const { return static_cast<std::int64_t>(order_.shuffle.size()); }

void GptSamples::check_vocab(const std::int64_t* tokens, std::int64_t count, std::int64_t sequence,
                             std::int64_t offset) const {
  const auto* end = tokens + count;
  const auto* bad = std::find_if(
      tokens, end, [this](std::int64_t token) { return token < 0 || token >= vocab_; });
  if (bad == end) return;
  throw UsageError(
      {Severity::error, corpus_->file(), "",
       fmt::format(
           "token id {} at position {} (token {} of sequence {}) is outside the vocabulary, "
           "0 to {}.",
           *bad, corpus_->position(sequence, offset + (bad - tokens)), offset + (bad - tokens),
           sequence, vocab_ - 1),
       *bad < 0 ? "Build the corpus again: ids are never negative."
                : fmt::format("Use a vocabulary of at least {} (tokenizer.vocab_size), or the "
                              "tokenizer that made the corpus.",
                              *bad + 1)});
}

// seq_length + extra tokens, padded at the end.
std::vector<std::int64_t> GptSamples::gather(std::int64_t sample) const {
  std::vector<std::int64_t> text(static_cast<std::size_t>(seq_length_ + extra_tokens_), kPadding);
  const Place begin = order_.places[static_cast<std::size_t>(sample)];
  const Place end = order_.places[static_cast<std::size_t>(sample) + 1];
  std::int64_t filled = 0;
  for (std::int64_t i = begin.document; i <= end.document; ++i) {
    const std::int64_t sequence = order_.documents[static_cast<std::size_t>(i)];
    const std::int64_t length = corpus_->lengths()[static_cast<std::size_t>(sequence)];
    const std::int64_t from = i == begin.document ? begin.offset : 0;
    const std::int64_t to = i == end.document ? end.offset + extra_tokens_ : length;
    std::int64_t* out = text.data() + filled;
    corpus_->read(sequence, from, to - from, out);
    check_vocab(out, to - from, sequence, from);
    filled += to - from;
  }
  return text;
}

void GptSamples::read(std::int64_t index, Batch& batch) const {
  check_index(index, size());
  RR_CHECK(batch.num_sequences == 0 || batch.seq_length == seq_length_,
           fmt::format("{} tokens after {}", seq_length_, batch.seq_length));
  const auto text = gather(order_.shuffle[static_cast<std::size_t>(index)]);
  const bool document_starts = reset_attention_mask_;
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < seq_length_; ++i) {
    const std::int64_t token = text[static_cast<std::size_t>(i)];
    const bool has_label = i + 1 < static_cast<std::int64_t>(text.size());
    const std::int64_t label = has_label ? text[static_cast<std::size_t>(i) + 1] : kPadding;
    const bool ends = token == end_of_document_ && token != kPadding;
    batch.tokens.push_back(without_padding(token));
    batch.labels.push_back(without_padding(label));
    batch.loss_mask.push_back(label == kPadding || (eod_mask_loss_ && ends) ? 0.0F : 1.0F);
    batch.positions.push_back(reset_position_ids_ ? i - start : i);
    if (document_starts) batch.document_starts.push_back(start);
    if (ends) start = i + 1;
  }
  batch.seq_length = seq_length_;
  ++batch.num_sequences;
}

BlendedSamples::BlendedSamples(std::vector<std::unique_ptr<GptSamples>> parts, Blend blend)
    : parts_(std::move(parts)), blend_(std::move(blend)) {
  std::vector<std::int64_t> drawn(parts_.size(), 0);
  for (const std::int16_t part : blend_.part) ++drawn[static_cast<std::size_t>(part)];
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (drawn[i] <= parts_[i]->size()) continue;
    throw UsageError(
        {Severity::error, "dataset.mid_level_dataset_surplus", "",
         fmt::format("the blend oversamples the contributing datasets: it draws {} samples of "
                     "corpus {}, which has {}.",
                     format_count(drawn[i]), i, format_count(parts_[i]->size())),
         "Use a larger surplus, twice or ten times the present one."});
  }
}

std::int64_t BlendedSamples::size() const { return static_cast<std::int64_t>(blend_.part.size()); }

void BlendedSamples::read(std::int64_t index, Batch& batch) const {
  check_index(index, size());
  const auto i = static_cast<std::size_t>(index);
  parts_[static_cast<std::size_t>(blend_.part[i])]->read(blend_.sample[i], batch);
}

}  // namespace rr::data
