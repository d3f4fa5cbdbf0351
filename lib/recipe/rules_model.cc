// Rules about the shape of a model and its vocabulary.
#include <fmt/format.h>

#include "recipe/rules.h"

namespace rr::recipe {
namespace {

Verdict sizes_set(const Facts& f) {
  const Model& m = f.config.model;
  for (const auto& [value, key] :
       {std::pair{m.num_layers, "model.num_layers"}, std::pair{m.hidden_size, "model.hidden_size"},
        std::pair{m.num_attention_heads, "model.num_attention_heads"}}) {
    if (value < 1) {
      return Finding{fmt::format("{} is not set", key),
                     "Set it, or name an architecture with model.preset."};
    }
  }
  return {};
}

Verdict vocabulary_set(const Facts& f) {
  if (f.config.model.vocab_size) return {};
  return Finding{"model.vocab_size is not set and the tokenizer does not tell it",
                 "Set model.vocab_size or tokenizer.vocab_size."};
}

Verdict vocabulary_covers(const Facts& f) {
  const auto model = f.config.model.vocab_size, tokenizer = f.config.tokenizer.vocab_size;
  if (!model || !tokenizer || *model >= *tokenizer) return {};
  return Finding{fmt::format("model.vocab_size ({}) cannot be smaller than tokenizer's vocab_size "
                             "({})",
                             *model, *tokenizer),
                 fmt::format("Use model.vocab_size={} or more.", *tokenizer)};
}

Verdict end_of_document(const Facts& f) {
  const auto id = f.config.tokenizer.null_tokenizer_eod_id, size = f.config.tokenizer.vocab_size;
  if (!id || !size || *id < *size) return {};
  return Finding{fmt::format("tokenizer.null_tokenizer_eod_id={} is not below "
                             "tokenizer.vocab_size={}",
                             *id, *size),
                 fmt::format("Use at most {}.", *size - 1)};
}

Verdict heads_divide(const Facts& f) {
  const Model& m = f.config.model;
  if (m.multi_latent_attention || m.kv_channels || m.num_attention_heads < 1) return {};
  if (m.hidden_size % m.num_attention_heads == 0) return {};
  return Finding{
      fmt::format("model.hidden_size ({}) must be a multiple of model.num_attention_heads "
                  "({}), or model.kv_channels must be set",
                  m.hidden_size, m.num_attention_heads),
      ""};
}

Verdict groups_divide(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.num_query_groups || m.num_attention_heads < 1) return {};
  if (m.num_attention_heads % *m.num_query_groups == 0) return {};
  return Finding{fmt::format("model.num_attention_heads ({}) must be a multiple of "
                             "model.num_query_groups ({})",
                             m.num_attention_heads, *m.num_query_groups),
                 ""};
}

Verdict rotary_width(const Facts& f) {
  const Model& m = f.config.model;
  if (m.position_embedding_type != "rope" || !m.kv_channels) return {};
  const auto rotated =
      static_cast<std::int64_t>(static_cast<double>(*m.kv_channels) * m.rotary_percent);
  if (rotated >= 2 && rotated % 2 == 0) return {};
  return Finding{fmt::format("rotary embedding turns pairs: model.kv_channels={} with "
                             "model.rotary_percent={} leaves {} elements",
                             *m.kv_channels, m.rotary_percent, rotated),
                 "Use an even number."};
}

Verdict rope_factors(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.rope_scaling) return {};
  if (m.rope_scaling_high_freq_factor > m.rope_scaling_low_freq_factor) return {};
  return Finding{fmt::format("model.rope_scaling_high_freq_factor={} must be above "
                             "model.rope_scaling_low_freq_factor={}",
                             m.rope_scaling_high_freq_factor, m.rope_scaling_low_freq_factor),
                 ""};
}

Verdict rope_scaling_unused(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.rope_scaling || m.position_embedding_type == "rope") return {};
  return Finding{fmt::format("model.rope_scaling=true does nothing with "
                             "model.position_embedding_type={}",
                             m.position_embedding_type),
                 "Use model.position_embedding_type=rope."};
}

Verdict norm_whole(const Facts& f) {
  const Model& m = f.config.model;
  if (!m.qk_layernorm_whole || m.qk_layernorm) return {};
  return Finding{"model.qk_layernorm_whole=true does nothing while model.qk_layernorm=false",
                 "Use model.qk_layernorm=true."};
}

Verdict precision_exclusive(const Facts& f) {
  if (!f.config.model.bf16 || !f.config.model.fp16) return {};
  return Finding{"bf16 and fp16 are mutually exclusive: model.bf16=true and model.fp16=true",
                 "Use mixed_precision=bf16_mixed."};
}

Verdict pipeline_type(const Facts& f) {
  const Model& m = f.config.model;
  if (m.pipeline_model_parallel_size == 1 || m.pipeline_dtype == m.params_dtype) return {};
  return Finding{fmt::format("{} differs from {}; stages send each other what they compute in",
                             f.show("model.pipeline_dtype"), f.show("model.params_dtype")),
                 "Leave model.pipeline_dtype out."};
}

}  // namespace

const std::vector<Rule>& model_rules() {
  static constexpr auto kError = Severity::error;
  static const std::vector<Rule> rules = {
      {kError,
       {"model.num_layers", "model.hidden_size", "model.num_attention_heads", "model.preset"},
       "the model's sizes are set",
       sizes_set},
      {kError,
       {"model.vocab_size", "tokenizer.vocab_size"},
       "the vocabulary is known",
       vocabulary_set},
      {kError,
       {"model.vocab_size", "tokenizer.vocab_size"},
       "the model's vocabulary covers the tokenizer's",
       vocabulary_covers},
      {kError,
       {"tokenizer.null_tokenizer_eod_id", "tokenizer.vocab_size"},
       "the end of document is a token",
       end_of_document},
      {kError,
       {"model.hidden_size", "model.num_attention_heads", "model.kv_channels"},
       "heads divide the hidden size",
       heads_divide},
      {kError,
       {"model.num_query_groups", "model.num_attention_heads"},
       "query groups divide the heads",
       groups_divide},
      {kError,
       {"model.kv_channels", "model.rotary_percent", "model.position_embedding_type"},
       "an even part of a head is rotated",
       rotary_width},
      {kError,
       {"model.rope_scaling_high_freq_factor", "model.rope_scaling_low_freq_factor"},
       "the high frequency factor is above the low one",
       rope_factors},
      {kError,
       {"model.bf16", "model.fp16"},
       "bf16 and fp16 exclude each other",
       precision_exclusive},
      {kError,
       {"model.pipeline_dtype", "model.params_dtype"},
       "stages send the type that they compute in",
       pipeline_type},
      {Severity::warning,
       {"model.rope_scaling", "model.position_embedding_type"},
       "rope_scaling needs rotary positions",
       rope_scaling_unused},
      {Severity::warning,
       {"model.qk_layernorm_whole", "model.qk_layernorm"},
       "qk_layernorm_whole needs qk_layernorm",
       norm_whole},
  };
  return rules;
}

}  // namespace rr::recipe
